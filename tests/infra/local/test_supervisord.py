"""supervisord itself: what its configuration can hold, and how programs begin and end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from infra.local import supervisord
from infra.local.supervisord import Gone, LocalError, Supervisord
from tests.infra.project import ROLE, eventually
from tests.ports import free_port

COMMAND = [sys.executable, str(ROLE)]


def put(daemon: Supervisord, folder: Path, name: str = "role", stop_seconds: float = 10.0, **environ: str) -> Path:
    """Start a small role; gives its log."""
    log = folder / f"{name}.log"
    settings = {"INSTANCE": name, "PORT": str(free_port()), **environ}
    daemon.put(name, COMMAND, settings, folder, log, stop_seconds)
    return log


def pid_of(daemon: Supervisord, name: str = "role") -> int:
    info = daemon.info(name)
    assert info is not None
    return int(info["pid"])


@pytest.mark.parametrize(
    "value",
    ["50% off, or %(here)s", "it's", 'say "hi"', "a=b,c=d", "", "ünï 漢字", "a ;b #c", "~/$HOME", "two\nlines", "\\"],
)
def test_a_value_arrives_as_it_was_given(daemon: Supervisord, tmp_path: Path, value: str) -> None:
    log = put(daemon, tmp_path, GREETING=value)
    eventually(lambda: f"with {value!r}" in log.read_text())


def test_a_folder_may_have_a_name_that_the_configuration_gives_a_meaning(daemon: Supervisord, tmp_path: Path) -> None:
    folder = tmp_path / "50% off, it's here"
    folder.mkdir()
    log = put(daemon, folder)
    eventually(lambda: "starts" in log.read_text())


def test_a_folder_that_cannot_be_held_is_refused(daemon: Supervisord, tmp_path: Path) -> None:
    folder = tmp_path / "a ;comment"
    folder.mkdir()
    with pytest.raises(LocalError, match="cannot hold the path"):
        put(daemon, folder)


def test_starting_it_twice_starts_it_once(daemon: Supervisord, tmp_path: Path) -> None:
    before = daemon.pid()
    daemon.start(tmp_path / "supervisord.log")
    assert daemon.pid() == before


def test_a_killed_program_comes_back(daemon: Supervisord, tmp_path: Path) -> None:
    put(daemon, tmp_path)
    eventually(lambda: pid_of(daemon))
    before = pid_of(daemon)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: pid_of(daemon) not in (0, before))


def test_removing_a_program_drains_it_first(daemon: Supervisord, tmp_path: Path) -> None:
    log = put(daemon, tmp_path, DRAIN="0.3")
    eventually(lambda: "starts" in log.read_text())
    time.sleep(0.3)  # its handler for SIGTERM is in place a moment after its first line
    daemon.remove("role", 10.0)
    assert "draining" in log.read_text()
    assert daemon.info("role") is None
    daemon.remove("role", 10.0)


def test_a_program_that_drains_for_too_long_is_killed(daemon: Supervisord, tmp_path: Path) -> None:
    log = put(daemon, tmp_path, stop_seconds=1.0, DRAIN="60")
    eventually(lambda: "starts" in log.read_text())
    daemon.remove("role", 1.0)
    assert daemon.info("role") is None


def test_programs_get_nothing_of_the_callers_environment_but_what_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREETING", "leaked")
    daemon = Supervisord(tmp_path / "run")
    daemon.start(tmp_path / "supervisord.log")
    try:
        log = put(daemon, tmp_path)
        eventually(lambda: "with ''" in log.read_text())
    finally:
        daemon.stop(20.0)


def test_after_its_end_nothing_is_left_and_calls_say_so(tmp_path: Path) -> None:
    daemon = Supervisord(tmp_path / "run")
    daemon.start(tmp_path / "supervisord.log")
    put(daemon, tmp_path)
    eventually(lambda: pid_of(daemon))
    pid = pid_of(daemon)
    daemon.stop(20.0)
    assert not daemon.run.exists()
    assert not daemon.alive()
    eventually(lambda: not Path(f"/proc/{pid}/exe").exists())
    with pytest.raises(Gone):
        daemon.info("role")
    daemon.stop(1.0)


def test_one_that_hangs_is_said_to(daemon: Supervisord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisord, "CALL_SECONDS", 0.5)
    pid = daemon.pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LocalError, match="it hangs") as caught:
            daemon.info("role")
        assert not isinstance(caught.value, Gone)
        with pytest.raises(LocalError, match="it hangs"):
            daemon.start(tmp_path / "supervisord.log")  # not a second one beside it
    finally:
        os.kill(pid, signal.SIGCONT)
    assert daemon.pid() == pid


def test_a_lock_that_is_held_too_long_is_named(daemon: Supervisord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisord, "LOCK_SECONDS", 0.1)
    with daemon.lock(), pytest.raises(LocalError, match="another operation"), Supervisord(daemon.run).lock():
        pass


def test_its_end_removes_what_killed_programs_left(tmp_path: Path) -> None:
    """Such as the socket of a worker that had no time to unlink it."""
    daemon = Supervisord(tmp_path / "run")
    daemon.start(tmp_path / "supervisord.log")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(daemon.run / "decode-worker-0.sock"))
    daemon.stop(20.0)
    assert not daemon.run.exists()


def test_the_programs_of_a_killed_one_are_waited_for(tmp_path: Path) -> None:
    daemon = Supervisord(tmp_path / "run")
    daemon.start(tmp_path / "supervisord.log")
    log = put(daemon, tmp_path, DRAIN="2")
    eventually(lambda: "starts" in log.read_text())
    time.sleep(0.3)  # its handler for SIGTERM is in place a moment after its first line
    pid = pid_of(daemon)
    os.kill(daemon.pid(), signal.SIGKILL)
    with pytest.raises(LocalError, match="programs of it still run"):
        daemon.stop(0.1)
    daemon.stop(20.0)
    assert not Path(f"/proc/{pid}/exe").exists()
    assert not daemon.run.exists()


def test_a_socket_that_a_killed_one_left_is_no_obstacle(tmp_path: Path) -> None:
    daemon = Supervisord(tmp_path / "run")
    daemon.start(tmp_path / "supervisord.log")
    put(daemon, tmp_path, name="old")
    os.kill(daemon.pid(), signal.SIGKILL)
    eventually(lambda: not daemon.alive())
    assert daemon.socket.exists()
    try:
        daemon.start(tmp_path / "supervisord.log")
        assert daemon.infos() == []
    finally:
        daemon.stop(20.0)
