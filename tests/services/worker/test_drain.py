"""SIGTERM lets what runs end, refuses what comes, waits for leases, and leaves nothing behind."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import httpx
import pytest

from tests.services.worker.fleet import MODEL, Fleet, until


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


def states(fleet: Fleet) -> dict[str, str]:
    """Each worker's, as the scheduler sees it."""
    workers = fleet.http.get(fleet.urls["scheduler"] + "/v1/workers").json()["workers"]
    return {worker["worker_id"]: worker["state"] for worker in workers}


def test_pods_drain(tmp_path: Path, model_path: Path) -> None:
    """As in a rollout: schedulers know at once, KV that is kept can still be pulled, a stream is written to its end. A
    lease that nobody ends holds the worker up for drain_seconds and no longer.
    """
    fleet = Fleet(tmp_path, model_path, lease_seconds=600, drain_seconds=15, pods=True)
    fleet.start_all()
    prompt = list(range(1000, 1100))
    first, handle = fleet.prefill("wanted", prompt, ignore_eos=True)
    fleet.prefill("forgotten", prompt)
    fleet.processes["prefill"].terminate()
    until("drains", lambda: states(fleet)["prefill"] == "draining")
    assert states(fleet)["decode"] == "live"
    ready = fleet.http.get(fleet.probes["prefill"] + "/ready")
    assert (ready.status_code, ready.json()["reason"]) == (503, "draining")
    assert fleet.http.get(fleet.probes["prefill"] + "/health").status_code == 200
    refused = fleet.complete("prefill", "late", prompt=prompt, kv_transfer_params={"do_remote_decode": True})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")

    body = {
        "model": MODEL, "prompt": [*prompt, first], "output_tokens": 1, "max_tokens": 40, "temperature": 0,
        "ignore_eos": True, "stream": True, "kv_transfer_params": handle,
    }  # fmt: skip
    url = f"{fleet.urls['decode']}/v1/completions"
    with fleet.http.stream("POST", url, json=body, headers={"X-Request-Id": "wanted"}) as answer:
        lines = (line for line in answer.iter_lines() if line)
        events = [json.loads(next(lines)[6:])]
        fleet.processes["decode"].terminate()
        until("drains", lambda: states(fleet)["decode"] == "draining")
        events += [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert sum(len(event["choices"][0]["token_ids"]) for event in events) == 40
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert fleet.processes["decode"].wait(30) == 0
    fleet.release("wanted", handle["nonce"])
    assert fleet.processes["prefill"].poll() is None, "a lease was open"
    assert fleet.processes["prefill"].wait(60) == 0
    assert "drained" not in [json.loads(line)["event"] for line in fleet.log("prefill").splitlines()[1:]]
    fleet.stop()
