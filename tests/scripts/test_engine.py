"""The `diphase` command on isolated projects: what it writes, what it says, how it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.supervisord import Supervisord
from tests.infra.project import Remote, Roles, eventually, make_project, write_stack

DIPHASE = [f"{sys.prefix}/bin/diphase"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_project(tmp_path / "project", monkeypatch)


@pytest.fixture
def remote(project: Path) -> Iterator[Remote]:
    made = Remote(project, Roles(["back", "front"]))
    yield made
    Supervisord(made.paths.run).stop(20.0)


def diphase(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DIPHASE, *arguments], capture_output=True, text=True, timeout=120, check=False)


def files(folder: Path) -> dict[str, str]:
    """The files that belong to the project itself, with their contents."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not {".diphase", "infra", "__pycache__"} & set(path.relative_to(folder).parts)
    }


def test_configuration_is_read_from_stacks_and_nothing_is_written_elsewhere(project: Path) -> None:
    write_stack(project, "local", {"target": "local", "decode": {"replicas": 3}})
    done = diphase("preview")
    assert done.returncode == 0, done.stderr
    assert "decode-worker-2 to create" in done.stderr
    assert set(files(project)) == {"Pulumi.yaml", "stacks/Pulumi.local.yaml"}
    before = files(project)
    assert "encryptionsalt" in before["stacks/Pulumi.local.yaml"]
    assert diphase("preview").returncode == 0
    assert files(project) == before, "with its salt committed, an operation changes no committed file"


def test_the_checkouts_own_stack_has_its_salt(project: Path) -> None:
    committed = Path(__file__).resolve().parents[2] / "stacks" / "Pulumi.local.yaml"
    (project / "stacks" / "Pulumi.local.yaml").write_text(committed.read_text())
    before = files(project)
    assert diphase("preview").returncode == 0
    assert files(project) == before


def test_expect_no_changes_exits_with_one_on_a_change(project: Path) -> None:
    write_stack(project, "local", {"target": "local"})
    done = diphase("preview", "--expect-no-changes")
    assert done.returncode == 1
    assert "no changes were expected, but there are" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["up", "--stack", "ghost"], "there is no stack ghost"),
        (["up", "--stack", "../x"], "a stack's name has"),
        (["status", "--stack", "ghost"], "stack ghost is not up: run `diphase up --stack ghost`"),
        (["frobnicate"], "No such command"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(project: Path, arguments: list[str], says: str) -> None:
    done = diphase(*arguments)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_configuration_is_said_before_anything_is_made(project: Path) -> None:
    write_stack(project, "local", {"target": "local", "decode": {"replica": 1}, "kv": {"poolMib": 0}})
    done = diphase("up")
    assert done.returncode == 1
    assert "diphase:decode.replica is unknown; did you mean replicas?" in done.stderr
    assert "diphase:kv.poolMib is 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "created" not in done.stderr


def test_outside_of_a_project_it_says_where_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIPHASE_PROJECT", raising=False)
    done = subprocess.run([*DIPHASE, "up"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "no Pulumi.yaml in" in done.stderr


def lock(project: Path, stack: str, pid: int) -> None:
    """What a process that holds a stack leaves in the file backend."""
    folder = project / ".diphase" / "state" / ".pulumi" / "locks" / "organization" / "diphase" / stack
    folder.mkdir(parents=True, exist_ok=True)
    held = {"pid": pid, "username": "ada", "hostname": socket.gethostname(), "timestamp": "2026-01-02T03:04:05.6Z"}
    (folder / "00000000-0000-0000-0000-000000000000.json").write_text(json.dumps(held))


def test_a_locked_stack_names_the_holder_and_the_remedy(project: Path) -> None:
    write_stack(project, "local", {"target": "local"})
    assert diphase("preview").returncode == 0
    dead = subprocess.Popen(["true"])
    dead.wait()
    for pid, says in ((os.getpid(), "wait until that operation ends"), (dead.pid, "which is gone")):
        lock(project, "local", pid)
        done = diphase("refresh")
        assert done.returncode == 1
        assert f"locked by ada@{socket.gethostname()}, process {pid}" in done.stderr
        assert says in done.stderr
        assert "diphase cancel --stack local" in done.stderr
    assert diphase("cancel").returncode == 0
    assert diphase("refresh").returncode == 0


def test_down_of_what_is_not_up_is_no_fault(project: Path) -> None:
    write_stack(project, "local", {"target": "local"})
    done = diphase("down")
    assert done.returncode == 0
    assert "stack local is not up" in done.stderr


def test_down_ends_what_the_state_does_not_know_of(remote: Remote) -> None:
    remote.up()
    (remote.project / ".diphase" / "state" / ".pulumi" / "stacks" / "diphase" / "test.json").unlink()
    assert Supervisord(remote.paths.run).alive()
    assert diphase("down", "--stack", "test").returncode == 0
    assert not remote.paths.run.exists()


UP_IN_A_PROCESS = """\
import sys
from pathlib import Path
from tests.infra.project import Roles
from scripts import cli, up
from scripts.engine import Engine
roles = Roles(["back", "front"], {"back": {"READY_AFTER": "60"}}, ready_seconds=30.0)
up.Engine = lambda stack, config_file: Engine(stack, roles)
sys.argv = ["diphase", "up", "--stack", "test"]
cli.main()
"""


def processes_of(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_after_an_interrupted_up_the_next_down_and_up_work(remote: Remote, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", UP_IN_A_PROCESS], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    daemon = Supervisord(remote.paths.run)
    eventually(lambda: daemon.alive() and daemon.info("front") is not None and daemon.info("front")["pid"])
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in said
    eventually(lambda: not processes_of(process.pid))
    if number == signal.SIGKILL:
        diphase("cancel", "--stack", "test")  # fails where the engine had just let go of the lock; the next `up` tells
    remote.up()
    assert all(info["pid"] for info in daemon.infos())
    remote.run("destroy")
    assert not remote.paths.run.exists()
