"""The main job on real input: up, no change, a conversation through the official client, the proof that KV moved."""

from __future__ import annotations

import json

import httpx

from tests.e2e.stack import MODEL, Stack, wait_until

CAPITAL = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


def test_second_preview_reports_no_change(stack: Stack) -> None:
    done = stack.run("preview", "--expect-no-changes", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_status_names_five_kinds_of_role(stack: Stack) -> None:
    status = stack.status()
    assert {role["name"].rpartition("-")[0] for role in status["roles"]} == {
        "gateway",
        "scheduler",
        "prefill-worker",
        "decode-worker",
        "kv",
    }
    assert {"scheduler-0", "scheduler-1"} <= {role["name"] for role in status["roles"]}
    assert len({role["pid"] for role in status["roles"]}) == len(status["roles"]) == 6
    assert all(role["ready"] for role in status["roles"])
    assert status["gateway"]["url"] == stack.gateway


def test_a_conversation(stack: Stack) -> None:
    client = stack.client()
    answer = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=20)
    text = answer.choices[0].message.content
    assert "Paris" in text
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens

    pieces = list(
        client.chat.completions.create(
            model=MODEL,
            messages=CAPITAL,
            temperature=0,
            max_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert streamed == text
    assert pieces[-1].usage == answer.usage
    assert pieces[0].choices[0].delta.role == "assistant"

    more = [*CAPITAL, {"role": "assistant", "content": text}, {"role": "user", "content": "And of Italy?"}]
    assert (
        "Rome"
        in client.chat.completions.create(model=MODEL, messages=more, temperature=0, max_tokens=20)
        .choices[0]
        .message.content
    )


def test_models_are_listed(stack: Stack) -> None:
    assert [model.id for model in stack.client().models.list()] == [MODEL]


def test_kv_moved_from_prefill_to_decode(stack: Stack) -> None:
    def pulled() -> float:
        return stack.metric("decode-worker-0", "diphase_kv_transfer_bytes_total", direction="pull", transport="shm")

    def computed() -> float:
        return stack.metric("decode-worker-0", "diphase_local_prefill_total")

    before, local = pulled(), computed()
    stack.client().completions.create(model=MODEL, prompt="one two three " * 100, max_tokens=4)
    layers, heads, dim, itemsize, block = 30, 3, 64, 4, 64
    block_bytes = layers * 2 * heads * dim * itemsize * block
    moved = pulled() - before
    assert moved > 0
    assert moved % block_bytes == 0
    assert computed() == local, "decode computed a prompt by itself"


def test_the_first_chunk_comes_before_the_last_is_made(stack: Stack) -> None:
    """The stream is a stream: its first piece, prefill's, is read before decode has begun or while it still runs."""
    stream = stack.client().completions.create(
        model=MODEL, prompt="Once", max_tokens=200, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    wait_until("decode runs", lambda: stack.metric("decode-worker-0", "vllm:num_requests_running") == 1)
    stream.close()


def test_request_id_travels_into_every_log(stack: Stack) -> None:
    identity = "req-travels-everywhere-1"
    answer = httpx.post(
        f"{stack.gateway}/v1/completions",
        json={"model": MODEL, "prompt": "Hello", "max_tokens": 3},
        headers={"Authorization": f"Bearer {stack.api_key}", "X-Request-Id": identity},
        timeout=60,
    )
    assert answer.headers["x-request-id"] == identity
    logs = stack.project / ".diphase" / stack.name / "logs"
    for role in ("gateway-0", "prefill-worker-0", "decode-worker-0"):
        lines = [json.loads(line) for line in (logs / f"{role}.log").read_text().splitlines() if identity in line]
        assert any(line.get("request_id") == identity for line in lines), role


def test_stop_strings_logprobs_and_seeds(stack: Stack) -> None:
    client = stack.client()
    full = client.completions.create(model=MODEL, prompt="Count: one, two, three,", max_tokens=24, temperature=0)
    text = full.choices[0].text
    cut = text[4:8]
    stopped = client.completions.create(
        model=MODEL, prompt="Count: one, two, three,", max_tokens=24, temperature=0, stop=[cut]
    )
    assert stopped.choices[0].text == text[: text.index(cut)]
    assert stopped.choices[0].finish_reason == "stop"

    rated = client.chat.completions.create(
        model=MODEL, messages=CAPITAL, temperature=0, max_tokens=4, logprobs=True, top_logprobs=3
    )
    entries = rated.choices[0].logprobs.content
    assert len(entries) == rated.usage.completion_tokens
    for entry in entries:
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)
        assert len(entry.top_logprobs) == 3

    def sampled(seed: int) -> str:
        return (
            client.completions.create(
                model=MODEL, prompt="A story about", max_tokens=24, temperature=1.0, top_p=0.95, seed=seed
            )
            .choices[0]
            .text
        )

    assert sampled(7) == sampled(7)
    assert len({sampled(seed) for seed in range(3)}) > 1
