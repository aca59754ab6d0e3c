"""A worker that cannot serve ends by itself: told to stop while it loads, without its port, or without its engine."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from services.common.settings import WorkerSettings
from tests.ports import free_port
from tests.services.worker.fleet import MODEL, START_SECONDS, Fleet, until


@pytest.fixture
def alone(tmp_path: Path, model_path: Path) -> Fleet:
    """No process yet."""
    return Fleet(tmp_path, model_path)


def start(fleet: Fleet, port: int, program: str | None = None) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    fleet.start(
        "worker",
        WorkerSettings(
            instance="worker",
            port=port,
            phase="decode",
            model_path=fleet.model_path,
            model_name=MODEL,
            max_model_len=2048,
            advertise_url=f"http://127.0.0.1:{port}",
            scheduler_urls=(nobody,),
            kv_url=nobody,
            kv_socket=fleet.folder / "worker.sock",
            kv_pool_mib=256,
        ),
        program,
    )


def loading(fleet: Fleet) -> bool:
    try:
        answer = fleet.http.get(fleet.urls["worker"] + "/ready")
    except httpx.TransportError:
        return False
    assert (answer.status_code, answer.json()["reason"]) == (503, "loading the model")
    return True


def test_sigterm_while_it_loads(alone: Fleet) -> None:
    start(alone, free_port())
    until("loading", lambda: loading(alone))
    assert alone.http.get(alone.urls["worker"] + "/health").status_code == 200
    alone.processes["worker"].terminate()
    alone.stop()
    assert "worker_ready" not in alone.log("worker")
    assert not list(alone.folder.glob("*.sock"))


def test_a_port_that_is_taken(alone: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        start(alone, other.getsockname()[1])
        assert alone.processes["worker"].wait(60) not in (0, None)
    alone.http.close()
    log = alone.log("worker")
    assert "address already in use" in log
    assert "Traceback" not in log
    assert "worker_ready" not in log


BROKEN = """
from services.worker.engine.torch import engine
plan = engine.plan
def broken(running, budget):
    if running:
        raise RuntimeError("the loop's own fault")
    return plan(running, budget)
engine.plan = broken
import runpy
runpy.run_module("services.worker", run_name="__main__")
"""


def test_a_worker_whose_engine_has_ended_leaves(alone: Fleet) -> None:
    """It answers who waits, and ends, so that its supervisor starts another."""
    start(alone, free_port(), BROKEN)
    until("loaded", lambda: "worker_ready" in alone.log("worker"), START_SECONDS)
    answer = alone.complete("worker", prompt=[1, 2, 3])
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failed")
    assert alone.processes["worker"].wait(60) == 0
    assert "engine_ended" in (alone.folder / "worker.log").read_text()
    assert not list(alone.folder.glob("*.sock"))
    alone.http.close()
