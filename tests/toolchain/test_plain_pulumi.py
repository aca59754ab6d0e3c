"""The same program under a plain `pulumi`: with the official language host where it is installed, else the stand-in."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.local.supervisord import Supervisord
from infra.paths import cache_dir
from scripts import pulumi_cli
from tests.infra.project import ROOT, Remote, Roles, make_project, write_stack

Plain = Callable[..., str]
STAND_IN = ROOT / "tests" / "toolchain" / "pulumi_language_python.py"
SMALL_PROGRAM = """\
import json
from pathlib import Path

import pulumi

from tests.infra.project import Roles

Roles(**json.loads({roles!r}))(Path(pulumi.get_root_directory()))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_project(tmp_path / "project", monkeypatch)


@pytest.fixture
def plain(tmp_path: Path, project: Path) -> Plain:
    """Calls `pulumi` in the project; gives what it printed."""
    folder = Path(sys.prefix) / pulumi_cli.ROOT / "bin"
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    if shutil.which("pulumi-language-python", path=path) is None:
        host = tmp_path / "bin" / "pulumi-language-python"
        host.parent.mkdir()
        host.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(STAND_IN))} "$@"\n')
        host.chmod(0o755)
        path = f"{host.parent}{os.pathsep}{path}"
    environ = {
        **os.environ,
        "PATH": path,
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_HOME": str(cache_dir(os.environ) / "pulumi-home"),
    }
    (project / ".diphase" / "state").mkdir(parents=True)

    def call(*arguments: str) -> str:
        command = ["pulumi", *arguments, "--non-interactive"]
        program = shutil.which("pulumi", path=path)
        assert program is not None
        done = subprocess.run(
            [program, *command[1:]], cwd=project, env=environ, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return call


def test_the_whole_program_plans_every_role(project: Path, plain: Plain) -> None:
    write_stack(project, "local", {"target": "local", "decode": {"replicas": 2}})
    plain("stack", "init", "local")
    steps = json.loads(plain("preview", "-s", "local", "--json"))["steps"]
    planned = {step["urn"].rsplit("::", 1)[1] for step in steps if step["op"] == "create"}
    roles = {
        "kv-0",
        "scheduler-0",
        "scheduler-1",
        "decode-worker-0",
        "decode-worker-1",
        "prefill-worker-0",
        "gateway-0",
    }
    assert planned == roles | {"model", "api-key", "supervisor", "ready", "diphase-local"}


@pytest.fixture
def small(project: Path) -> Iterator[Remote]:
    """A stack of small roles which is the project's program, too."""
    remote = Remote(project, Roles(["back", "front"]))
    roles = json.dumps(dataclasses.asdict(remote.roles))
    (project / "infra" / "__main__.py").write_text(SMALL_PROGRAM.format(roles=roles))
    yield remote
    Supervisord(remote.paths.run).stop(20.0)


def test_up_inline_and_plain_are_one_stack(small: Remote, plain: Plain) -> None:
    plain("stack", "init", "test")
    plain("up", "-s", "test", "--yes", "--skip-preview")
    before = {info["name"]: info["pid"] for info in Supervisord(small.paths.run).infos()}
    assert set(before) == {"back", "front"}
    assert small.run("preview", refresh=True) == {"same": 5}
    assert small.up() == {"same": 5}
    plain("preview", "-s", "test", "--expect-no-changes", "--refresh")
    assert before == {info["name"]: info["pid"] for info in Supervisord(small.paths.run).infos()}
    plain("destroy", "-s", "test", "--yes", "--skip-preview")
    assert not small.paths.run.exists()
