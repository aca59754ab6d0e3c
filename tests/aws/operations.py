"""A stack under the real engine, with the attached providers in place of AWS and of a cluster."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scripts.engine import Engine
from tests.infra.project import ROOT, write_stack

CALL_SECONDS = 580.0


@dataclass
class Operations:
    """Runs `program` as stack `name` of a project in `folder`; each operation is a process of its own."""

    folder: Path
    name: str
    program: Callable[[Path], None]
    environ: Mapping[str, str]
    config: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for inside in ("stacks", "infra"):  # Pulumi wants its `main` to be there, though the program is inline
            (self.folder / inside).mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / "Pulumi.yaml", self.folder / "Pulumi.yaml")

    def run(self, operation: str, **options: object) -> dict[str, int]:
        """The number of resources for each kind of change; raises OperationFailed."""
        write_stack(self.folder, self.name, self.config)
        begun = time.monotonic()
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            job = pool.submit(_operate, dict(self.environ), self.folder, self.name, self.program, operation, options)
            changes = job.result(CALL_SECONDS)
        self.seconds[operation] = time.monotonic() - begun
        return changes

    def resources(self) -> dict[str, dict[str, Any]]:
        """The state's resources by type and name."""
        path = self.folder / ".diphase" / "state" / ".pulumi" / "stacks" / "diphase" / f"{self.name}.json"
        found = json.loads(path.read_text())["checkpoint"]["latest"].get("resources", [])
        return {f"{one['type']} {one['urn'].rpartition('::')[2]}": one for one in found}


def _operate(
    environ: Mapping[str, str],
    project: Path,
    stack: str,
    program: Callable[[Path], None],
    operation: str,
    options: dict[str, object],
) -> dict[str, int]:
    os.environ.update(environ, DIPHASE_PROJECT=str(project))
    return Engine(stack, program).run(operation, operation, **options).changes
