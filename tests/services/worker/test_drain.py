"""The drain of workers in a rollout; that of workers on one machine is at the end of test_completions."""

from __future__ import annotations

import json
from pathlib import Path

from tests.services.worker.fleet import MODEL, Fleet, until


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
