"""SIGTERM lets what runs end, refuses what comes, waits for leases, and leaves nothing behind."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from tests.services.worker.fleet import Fleet, until


@pytest.fixture
def own(tmp_path: Path, model_path: Path) -> Fleet:
    """A fleet that the test may end."""
    fleet = Fleet(tmp_path, model_path, lease_seconds=60)
    fleet.start_all()
    return fleet


def test_sigterm_drains(own: Fleet) -> None:
    _, handle = own.prefill("kept", list(range(1000, 1100)))
    answers: list[httpx.Response] = []
    long = threading.Thread(
        target=lambda: answers.append(
            own.complete("decode", "long", prompt=list(range(100)), max_tokens=60, ignore_eos=True)
        )
    )
    long.start()
    until("running", lambda: own.metric("decode", "vllm:num_requests_running") == 1)
    for name in ("decode", "prefill"):
        own.processes[name].terminate()
    until("not ready", lambda: own.http.get(own.urls["decode"] + "/ready").status_code == 503)
    refused = own.complete("decode", "late", prompt=[1, 2, 3])
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    long.join(60)
    assert answers[0].status_code == 200
    assert len(answers[0].json()["choices"][0]["token_ids"]) == 60
    assert own.processes["decode"].wait(30) == 0
    assert own.processes["prefill"].poll() is None, "prefill left while its lease was open"
    own.release("kept", handle["nonce"])
    assert own.processes["prefill"].wait(30) == 0
    own.stop()
    assert not list(own.folder.glob("*.sock"))
