"""Programs as resources: what their provider does to a real supervisord."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.local.program import ProgramArgs, ProgramProvider
from infra.local.supervisord import LocalError, Supervisord
from tests.infra.project import ROLE, eventually
from tests.ports import free_port

PROVIDER = ProgramProvider()


def inputs(daemon: Supervisord, folder: Path, **environ: str) -> dict[str, Any]:
    """What Pulumi hands the provider: numbers arrive as floats."""
    port = free_port()
    return {
        "instance": "role",
        "run": str(daemon.run),
        "command": [sys.executable, str(ROLE)],
        "environment": {"INSTANCE": "role", "PORT": str(port), **environ},
        "directory": str(folder),
        "log": str(folder / "role.log"),
        "host": "127.0.0.1",
        "port": float(port),
        "portKey": "local.basePort",
        "url": f"http://127.0.0.1:{port}",
        "stopSeconds": 10.0,
        "readySeconds": 20.0,
        "restartOn": "",
    }


def state(known: dict[str, Any]) -> str | None:
    found = PROVIDER.read("role", known)
    assert found.outs is not None
    return found.outs.get("state") if found.id else None


def pid(daemon: Supervisord) -> int:
    info = daemon.info("role")
    return int(info["pid"]) if info else 0


def test_a_taken_port_is_said_before_anything_starts(daemon: Supervisord, tmp_path: Path) -> None:
    props = inputs(daemon, tmp_path)
    with socket.create_server(("127.0.0.1", int(props["port"]))), pytest.raises(LocalError) as caught:
        PROVIDER.create(props)
    for part in ("role", str(int(props["port"])), "diphase:local.basePort"):
        assert part in str(caught.value)
    assert daemon.info("role") is None


def test_creating_what_an_interrupted_up_left_starts_it_anew(daemon: Supervisord, tmp_path: Path) -> None:
    props = inputs(daemon, tmp_path)
    PROVIDER.create(props)
    eventually(lambda: pid(daemon))
    before = pid(daemon)
    PROVIDER.create(props)
    eventually(lambda: pid(daemon) not in (0, before))


def test_update_drains_then_waits_until_the_successor_is_ready(daemon: Supervisord, tmp_path: Path) -> None:
    old = inputs(daemon, tmp_path)
    known = PROVIDER.create(old).outs
    assert known is not None
    eventually(lambda: PROVIDER.diff("role", known, old).changes is False and "starts" in Path(old["log"]).read_text())
    new = {**old, "environment": {**old["environment"], "GREETING": "new", "READY_AFTER": "0.5"}}
    assert PROVIDER.diff("role", known, new).changes
    PROVIDER.update("role", known, new)
    assert "with 'new'" in Path(new["log"]).read_text()


def test_an_update_that_no_process_notices_restarts_nothing(daemon: Supervisord, tmp_path: Path) -> None:
    old = inputs(daemon, tmp_path)
    known = PROVIDER.create(old).outs
    assert known is not None
    eventually(lambda: pid(daemon))
    before = pid(daemon)
    new = {**old, "readySeconds": 7.0}
    assert PROVIDER.diff("role", known, new).changes
    PROVIDER.update("role", known, new)
    assert pid(daemon) == before


def test_read_tells_what_is_there(daemon: Supervisord, tmp_path: Path) -> None:
    props = inputs(daemon, tmp_path)
    known = PROVIDER.create(props).outs
    assert known is not None
    assert state(known) == "RUNNING"
    daemon.remove("role", 10.0)
    assert state(known) is None

    failing = inputs(daemon, tmp_path, FAIL="its disk is gone")
    known = PROVIDER.create(failing).outs
    assert known is not None
    eventually(lambda: state(known) in ("BACKOFF", "FATAL"))
    found = PROVIDER.read("role", known).outs
    assert found is not None
    assert PROVIDER.diff("role", found, failing).changes, "the next `up` must mend it"


def test_without_a_supervisord_there_is_no_program_and_nothing_to_delete(daemon: Supervisord, tmp_path: Path) -> None:
    props = inputs(daemon, tmp_path)
    known = PROVIDER.create(props).outs
    assert known is not None
    daemon.stop(20.0)
    assert state(known) is None
    PROVIDER.delete("role", known)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("example.org", "http://example.org:80"),
    ],
)
def test_a_role_that_listens_everywhere_is_reached_on_loopback(host: str, url: str) -> None:
    args = ProgramArgs(["x"], {}, Path("/"), Path("/log"), host, 80, "gateway.port", 1.0, 1.0)
    assert args.url == url
