"""Isolated projects for tests: a folder with its own Pulumi.yaml, stacks and state, and ports that are free."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import pulumi
import pytest
import yaml

from infra.local.program import ProgramArgs, SupervisedProgram
from infra.local.readiness import Readiness
from infra.local.supervisor import Supervisor
from infra.paths import StackPaths, cache_dir
from scripts.engine import Engine
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "tests" / "infra" / "local" / "role.py"


def make_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in `folder` that `Engine` and `diphase` take for theirs; its run folder is in `folder`, too."""
    settings = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    settings["runtime"]["options"]["virtualenv"] = sys.prefix
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(settings))
    shutil.copytree(ROOT / "infra", folder / "infra", ignore=shutil.ignore_patterns("__pycache__", ".venv"))
    monkeypatch.setenv("DIPHASE_PROJECT", str(folder))
    return folder


def write_stack(project: Path, stack: str, config: Mapping[str, object]) -> None:
    """Write a stack's configuration, keeping the salt that Pulumi added."""
    path = project / "stacks" / f"Pulumi.{stack}.yaml"
    before = yaml.safe_load(path.read_text()) if path.exists() else {}
    path.write_text(yaml.safe_dump({**before, "config": {f"diphase:{key}": value for key, value in config.items()}}))


@dataclass
class Roles:
    """A stack of small roles; `environ` may be changed between operations."""

    names: Sequence[str]
    environ: dict[str, dict[str, str]] = field(default_factory=dict)
    ready_seconds: float = 20.0
    drain_seconds: float = 5.0
    ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = self.ports or dict(zip(self.names, free_ports(len(self.names)), strict=True))

    def __call__(self, project: Path) -> None:
        paths = StackPaths.of(project, pulumi.get_stack(), cache_dir(os.environ))
        supervisor = Supervisor("supervisor", paths, 20.0)
        programs: list[SupervisedProgram] = []
        for name in self.names:
            args = ProgramArgs(
                command=[sys.executable, str(ROLE)],
                environment={"INSTANCE": name, "PORT": str(self.ports[name]), **self.environ.get(name, {})},
                directory=project,
                log=paths.log(name),
                host="127.0.0.1",
                port=self.ports[name],
                port_key="local.basePort",
                drain_seconds=self.drain_seconds,
                ready_seconds=self.ready_seconds,
            )
            after = [supervisor, *programs[-1:]]
            programs.append(SupervisedProgram(name, supervisor.run, args, pulumi.ResourceOptions(depends_on=after)))
        Readiness("ready", supervisor.run, [program.watched for program in programs], self.ready_seconds)
        pulumi.export("run", supervisor.run)


class Remote:
    """A stack of small roles, driven from another process: Pulumi's Python leaves event loops open when it fails."""

    _pool: ClassVar[ProcessPoolExecutor | None] = None

    def __init__(self, project: Path, roles: Roles, stack: str = "test") -> None:
        write_stack(project, stack, {"target": "local"})
        self.project, self.roles, self.stack = project, roles, stack
        self.paths = StackPaths.of(project, stack, cache_dir(os.environ))

    def run(self, operation: str, **options: object) -> dict[str, int]:
        """As Engine.run: the number of resources for each kind of change; raises OperationFailed."""
        if Remote._pool is None:
            Remote._pool = ProcessPoolExecutor(1, get_context("spawn"))
            atexit.register(Remote._pool.shutdown)
        job = Remote._pool.submit(_operate, self.project, self.roles, self.stack, operation, options)
        return job.result(timeout=120)

    def up(self) -> dict[str, int]:
        return self.run("up", refresh=True)

    def state(self) -> dict[str, dict[str, Any]]:
        """The outputs of each resource in the stack's state."""
        path = self.project / ".diphase" / "state" / ".pulumi" / "stacks" / "diphase" / f"{self.stack}.json"
        resources = json.loads(path.read_text())["checkpoint"]["latest"].get("resources", [])
        return {r["urn"].rsplit("::", 1)[1]: r.get("outputs", {}) for r in resources}


def _operate(project: Path, roles: Roles, stack: str, operation: str, options: dict[str, object]) -> dict[str, int]:
    os.environ["DIPHASE_PROJECT"] = str(project)
    return Engine(stack, roles).run(operation, operation, **options).changes


def eventually(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as `holds` gives something true; fails at the deadline, which is no measure of anything."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except FileNotFoundError:  # a file that is still to be written
            pass
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
