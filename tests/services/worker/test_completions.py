"""The two legs of a request between real workers, everything that is refused on the way, and the workers' drain."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest

from tests.services.worker.fleet import LEASE_SECONDS, MODEL, Fleet, until

PROMPT = list(range(1000, 1150))  # three blocks


def _decode(fleet: Fleet, request_id: str, first: int, handle: dict[str, Any], **body: Any) -> httpx.Response:
    return fleet.complete(
        "decode", request_id, prompt=[*PROMPT, first], output_tokens=1, kv_transfer_params=handle, **body
    )


def test_two_legs_equal_one_engine(fleet: Fleet) -> None:
    whole = fleet.complete("decode", "whole", prompt=PROMPT, max_tokens=12, ignore_eos=True).json()
    first, handle = fleet.prefill("split", PROMPT, ignore_eos=True)
    pulled = fleet.metric("decode", "diphase_kv_transfer_bytes_total", direction="pull")
    rest = _decode(fleet, "split", first, handle, max_tokens=11, ignore_eos=True).json()
    assert [first, *rest["choices"][0]["token_ids"]] == whole["choices"][0]["token_ids"]
    assert rest["usage"] == {
        "prompt_tokens": 151,
        "completion_tokens": 11,
        "total_tokens": 162,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert fleet.metric("decode", "diphase_kv_transfer_bytes_total", direction="pull") - pulled == 3 * 2_949_120
    fleet.release("split", handle["nonce"])


def test_an_engine_counts_the_time_in_which_it_computes(fleet: Fleet) -> None:
    def busy() -> float:
        return fleet.metric("decode", "diphase_engine_busy_seconds_total")

    before, started = busy(), time.monotonic()
    fleet.complete("decode", "busy", prompt=PROMPT, max_tokens=12, ignore_eos=True)
    until("at rest", lambda: fleet.metric("decode", "vllm:num_requests_running") == 0)
    after, took = busy(), time.monotonic() - started
    assert 0 < after - before <= took
    time.sleep(0.1)
    assert busy() == after


def test_a_stream_has_every_token_once(fleet: Fleet) -> None:
    whole = fleet.complete("decode", "whole", prompt=PROMPT, max_tokens=12, ignore_eos=True, logprobs=2).json()
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "stream": True}
    url = f"{fleet.urls['decode']}/v1/completions"
    with fleet.http.stream("POST", url, json={**body, "logprobs": 2}) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    choices = [event["choices"][0] for event in events]
    assert [token for choice in choices for token in choice["token_ids"]] == whole["choices"][0]["token_ids"]
    names = [name for choice in choices for name in choice["logprobs"]["tokens"]]
    assert names == [f"token_id:{token}" for token in whole["choices"][0]["token_ids"]]
    assert [choice.get("finish_reason") for choice in choices][-1] == "length"
    assert events[-1]["usage"] == whole["usage"]


def test_a_lease_is_released_once_and_renewed_while_open(fleet: Fleet) -> None:
    _, handle = fleet.prefill("leased", PROMPT)
    assert handle["remote_request_id"] == "leased"
    assert handle["num_tokens"] == len(PROMPT)
    assert len(handle["remote_block_ids"]) == 3
    assert time.time() < handle["expires_at"] <= time.time() + LEASE_SECONDS
    assert fleet.renew(handle).json()["expires_at"] > handle["expires_at"]
    fleet.release("leased", "0" * 32)  # of another generation: ignored
    assert fleet.metric("prefill", "diphase_kv_leases_open") == 1
    fleet.release("leased", handle["nonce"])
    fleet.release("leased", handle["nonce"])
    assert fleet.renew(handle).json()["error"]["code"] == "kv_unavailable"


def test_a_lease_that_nobody_renews_expires(fleet: Fleet) -> None:
    expired = fleet.metric("prefill", "diphase_kv_leases_total", outcome="expired")
    first, handle = fleet.prefill("forgotten", PROMPT)
    until("expired", lambda: fleet.metric("prefill", "diphase_kv_leases_open") == 0, LEASE_SECONDS + 5)
    assert fleet.metric("prefill", "diphase_kv_leases_total", outcome="expired") == expired + 1
    answer = _decode(fleet, "forgotten", first, handle, max_tokens=4)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "kv_unavailable")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nonce": "0" * 32}, "kv_unavailable"),
        ({"remote_engine_id": "another"}, "kv_unavailable"),
        ({"tokens_checksum": "0" * 16}, "kv_unavailable"),
        ({"kv_checksum": "0" * 16}, "kv_unavailable"),
        ({"num_tokens": 151}, "kv_unavailable"),
        ({"remote_socket": "/nowhere/at.sock"}, "kv_unavailable"),
        ({"expires_at": 1.0}, "kv_unavailable"),
        ({"layout": "0" * 16}, "incompatible"),
        ({"revision": "another"}, "incompatible"),
        ({"model": "another"}, "incompatible"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_handle_that_does_not_match_is_refused(fleet: Fleet, change: dict[str, Any], code: str) -> None:
    first, handle = fleet.prefill("altered", PROMPT)
    answer = _decode(fleet, "altered", first, {**handle, **change}, max_tokens=4, stream=True)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, code)
    fleet.release("altered")


def test_another_prompt_never_gets_this_kv(fleet: Fleet) -> None:
    first, handle = fleet.prefill("mine", PROMPT)
    answer = fleet.complete(
        "decode", "mine", prompt=[*reversed(PROMPT), first], kv_transfer_params=handle, max_tokens=4
    )
    assert answer.json()["error"]["code"] == "kv_unavailable"
    fleet.release("mine")


def test_a_handle_is_found_by_request_id(fleet: Fleet) -> None:
    first, handle = fleet.prefill("looked-up", PROMPT)
    directory = f"{fleet.urls['kv']}/v1/handles/looked-up"
    until("registered", lambda: fleet.http.get(directory).status_code == 200)
    by_id = {"do_remote_prefill": True, "remote_request_id": "looked-up"}
    found = _decode(fleet, "looked-up", first, by_id, max_tokens=6, ignore_eos=True).json()
    given = _decode(fleet, "looked-up", first, handle, max_tokens=6, ignore_eos=True).json()
    assert found["choices"] == given["choices"]
    fleet.release("looked-up")
    until("forgotten", lambda: fleet.http.get(directory).status_code == 404)
    answer = _decode(fleet, "looked-up", first, by_id, max_tokens=6)
    assert answer.json()["error"]["code"] == "kv_unavailable"


def test_end_of_text_keeps_no_lease(fleet: Fleet) -> None:
    first, handle = fleet.prefill("probe", PROMPT)
    fleet.release("probe", handle["nonce"])
    answer = fleet.complete(
        "prefill", "ended", prompt=PROMPT, stop_token_ids=[first], kv_transfer_params={"do_remote_decode": True}
    ).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "kv_transfer_params" not in answer


@pytest.mark.parametrize("worker", ["prefill", "decode"])
@pytest.mark.parametrize("seconds", [0.05, 0.4, 1.5])
def test_a_client_that_leaves_is_aborted(fleet: Fleet, worker: str, seconds: float) -> None:
    """In the queue, in the prompt and in the answer: nothing runs on, and the fixture sees every block come back."""
    params = {"do_remote_decode": True} if worker == "prefill" else None
    body = {
        "model": MODEL,
        "prompt": [1000 + index % 500 for index in range(1500)],
        "max_tokens": 1 if params else 500,
        "ignore_eos": True,
        "kv_transfer_params": params,
    }
    with pytest.raises(httpx.ReadTimeout):
        fleet.http.post(f"{fleet.urls[worker]}/v1/completions", json=body, timeout=httpx.Timeout(30, read=seconds))
    until("nothing runs", lambda: fleet.metric(worker, "vllm:num_requests_running") == 0)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"prompt": []}, 400, "empty"),
        ({"prompt": [-1]}, 400, "token ids"),
        ({"prompt": [10**6]}, 400, "token ids"),
        ({"prompt": [1], "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": [1], "max_tokens": 10**6}, 400, "max_tokens"),
        ({"prompt": [1] * 2000, "max_tokens": 100}, 400, "exceed"),
        ({"prompt": [1], "temperature": -1}, 400, "temperature"),
        ({"prompt": [1], "logprobs": 99}, 400, "logprobs"),
        ({"prompt": [1], "output_tokens": 2}, 400, "output_tokens"),
        ({"prompt": "text"}, 400, "CompletionRequest"),
        ({"prompt": [1], "model": "another"}, 404, "serves"),
        ({"prompt": [1], "max_tokens": 2, "kv_transfer_params": {"do_remote_decode": True}}, 400, "max_tokens 1"),
    ],
)
def test_wrong_requests_are_refused(fleet: Fleet, body: dict[str, Any], status: int, says: str) -> None:
    answer = fleet.complete("prefill", "wrong", **body)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]


def test_a_deadline_that_passed_is_an_error(fleet: Fleet) -> None:
    answer = fleet.complete("decode", "late", prompt=PROMPT, max_tokens=400, ignore_eos=True, timeout=0.5)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")


def test_models_and_health(fleet: Fleet) -> None:
    assert [model["id"] for model in fleet.http.get(fleet.urls["decode"] + "/v1/models").json()["data"]] == [MODEL]
    assert fleet.http.get(fleet.urls["decode"] + "/health").status_code == 200


def test_sigterm_drains(running: Fleet) -> None:
    """The last test here: it lets what runs end, refuses what comes, waits for leases, and leaves nothing behind."""
    answers: list[httpx.Response] = []
    long = threading.Thread(
        target=lambda: answers.append(
            running.complete("decode", "long", prompt=list(range(100)), max_tokens=60, ignore_eos=True)
        )
    )
    long.start()
    until("running", lambda: running.metric("decode", "vllm:num_requests_running") == 1)
    _, handle = running.prefill("kept", PROMPT)
    for name in ("decode", "prefill"):
        running.processes[name].terminate()
    until("not ready", lambda: running.http.get(running.urls["decode"] + "/ready").status_code == 503)
    refused = running.complete("decode", "late", prompt=[1, 2, 3])
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")

    def ended() -> bool:
        assert running.renew(handle).status_code == 200
        return running.processes["decode"].poll() is not None

    until("decode has ended", ended, 60)
    long.join(10)
    assert answers[0].status_code == 200
    assert len(answers[0].json()["choices"][0]["token_ids"]) == 60
    assert running.processes["decode"].returncode == 0
    assert running.processes["prefill"].poll() is None, "prefill left while its lease was open"
    running.release("kept", handle["nonce"])
    assert running.processes["prefill"].wait(30) == 0
    assert not list(running.folder.glob("*.sock"))
