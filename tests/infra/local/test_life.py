"""The life of a local stack under the real engine: made, changed, broken, mended, taken down."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.supervisord import Supervisord
from scripts.faults import OperationFailed
from tests.infra.project import Remote, Roles, eventually


class Stack(Remote):
    """A stack of two small roles."""

    def __init__(self, project: Path, stack: str = "test") -> None:
        super().__init__(project, Roles(["back", "front"]), stack)
        self.daemon = Supervisord(self.paths.run)

    def pids(self) -> dict[str, int]:
        return {info["name"]: info["pid"] for info in self.daemon.infos()}

    def status(self, name: str) -> str:
        info = self.daemon.info(name)
        return str(info["statename"]) if info else "absent"


@pytest.fixture
def stack(project: Path) -> Iterator[Stack]:
    made = Stack(project)
    yield made
    made.daemon.stop(20.0)


def test_up_then_no_changes_then_down_leaves_nothing(stack: Stack) -> None:
    assert stack.up() == {"create": 5}
    pids = stack.pids()
    assert stack.run("preview", refresh=True) == {"same": 5}
    assert stack.run("preview") == {"same": 5}
    assert stack.up() == {"same": 5}
    assert stack.pids() == pids
    assert stack.run("destroy") == {"delete": 5}
    assert not stack.daemon.run.exists()
    for pid in pids.values():
        eventually(lambda pid=pid: not Path(f"/proc/{pid}/exe").exists())
    assert stack.up() == {"create": 5}


def test_a_change_restarts_the_role_that_it_is_for_and_drains_it(stack: Stack) -> None:
    stack.up()
    before = stack.pids()
    stack.roles.environ["back"] = {"GREETING": "changed"}
    changes = stack.up()
    after = stack.pids()
    assert changes["update"] == 2, "the role and the readiness of all"
    assert after["front"] == before["front"]
    assert after["back"] != before["back"]
    log = stack.paths.log("back").read_text()
    assert log.index("draining") < log.index("with 'changed'")


def test_when_several_change_they_are_drained_in_order(stack: Stack) -> None:
    stack.up()
    stack.roles.environ = {"back": {"GREETING": "new"}, "front": {"GREETING": "new"}}
    stack.up()
    times = {}
    for name in ("back", "front"):
        lines = stack.paths.log(name).read_text().splitlines()
        times[name] = [int(line.split()[1 if "draining" in line else 2]) for line in lines]
    assert times["back"][-1] < times["front"][1], "back's successor had started before front was drained"


def test_a_role_that_is_removed_from_the_program_is_drained_and_removed(stack: Stack) -> None:
    stack.up()
    stack.roles.names = ["back"]
    assert stack.up()["delete"] == 1
    assert list(stack.pids()) == ["back"]
    assert "draining" in stack.paths.log("front").read_text()


def test_a_killed_role_is_no_change(stack: Stack) -> None:
    stack.up()
    before = stack.pids()["back"]
    os.kill(before, signal.SIGKILL)
    eventually(lambda: stack.pids()["back"] not in (0, before))
    assert stack.run("preview", refresh=True) == {"same": 5}


def test_refresh_tells_of_a_role_that_cannot_come_back_and_up_mends_it(stack: Stack) -> None:
    stack.up()
    port = stack.roles.ports["back"]
    stack.daemon.remove("back", 10.0)
    assert stack.run("refresh")
    assert "back" not in stack.state()
    assert stack.up()["create"] == 1

    # Killed, and its port taken by another before supervisord can start it again: it fails until it is FATAL.
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(stack.pids()["back"], signal.SIGKILL)
        eventually(lambda: bound(thief, port))
        thief.listen()
        eventually(lambda: stack.status("back") in ("BACKOFF", "FATAL"))
        stack.run("refresh")
        assert stack.state()["back"]["state"] in ("BACKOFF", "FATAL")
        with pytest.raises(OperationFailed, match=f"back cannot listen on 127.0.0.1:{port}: another program listens"):
            stack.up()
    stack.up()
    assert stack.status("back") in ("RUNNING", "STARTING")


def bound(thief: socket.socket, port: int) -> bool:
    """Whether it got the port now."""
    try:
        thief.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def test_a_killed_supervisor_takes_its_roles_with_it_and_up_brings_all_back(stack: Stack) -> None:
    stack.up()
    pids = stack.pids()
    os.kill(stack.daemon.pid(), signal.SIGKILL)
    for pid in pids.values():
        eventually(lambda pid=pid: not Path(f"/proc/{pid}/exe").exists())
    stack.run("refresh")
    assert "supervisor" not in stack.state()
    assert "back" not in stack.state()
    stack.up()
    assert set(stack.pids()) == {"back", "front"}
    assert all(stack.pids().values())


def test_up_fails_with_the_role_and_its_log_and_the_next_up_or_down_works(stack: Stack) -> None:
    stack.roles.environ["back"] = {"FAIL": "its disk is full"}
    with pytest.raises(
        OperationFailed, match=r"back ended while it started[\s\S]*cannot go on: its disk is full"
    ) as caught:
        stack.up()
    assert "Traceback" not in str(caught.value)
    stack.roles.environ["back"] = {}
    stack.up()
    assert all(stack.pids().values())
    stack.roles.environ["back"] = {"FAIL": "again"}
    with pytest.raises(OperationFailed, match="back ended while it started"):
        stack.up()
    stack.run("destroy")
    assert not stack.daemon.run.exists()


def test_a_taken_port_is_named_and_afterwards_down_works(stack: Stack) -> None:
    said = pytest.raises(OperationFailed, match=r"front cannot listen .* Set diphase:local.basePort")
    with socket.create_server(("127.0.0.1", stack.roles.ports["front"])), said:
        stack.up()
    stack.run("destroy")
    assert not stack.daemon.run.exists()


def test_two_stacks_run_side_by_side(stack: Stack) -> None:
    stack.up()
    other = Stack(stack.project, "other")
    try:
        other.up()
        first, second = stack.pids(), other.pids()
        assert set(first) == set(second)
        assert not set(first.values()) & set(second.values())
        other.run("destroy")
        assert stack.pids() == first
        assert not other.paths.run.exists()
    finally:
        other.daemon.stop(20.0)


def test_what_a_killed_update_left_is_seen_and_brought_back(stack: Stack) -> None:
    """Its step was done but not recorded: by the state nothing has changed."""
    stack.up()
    before = stack.pids()
    described = stack.daemon.run / "programs" / "back.json"
    made_from = json.loads(described.read_text())["made_from"]
    put = {**made_from, "environment": {**made_from["environment"], "GREETING": "half-finished"}}
    stack.daemon.put(
        "back", put["command"], put["environment"], stack.project, stack.paths.log("back"), put["stopSeconds"], put
    )
    eventually(lambda: "with 'half-finished'" in stack.paths.log("back").read_text())
    changes = stack.up()
    assert changes["update"] == 2, "the role and the readiness of all"
    assert stack.pids()["front"] == before["front"]
    assert "with 'half-finished'" not in stack.paths.log("back").read_text().rpartition("draining")[2]
    assert stack.run("preview", refresh=True) == {"same": 5}
