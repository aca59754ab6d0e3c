"""Greedy text through prefill, KV and decode is transformers' own, token for token; sampling is one engine's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.prompts import hundred
from tests.e2e.reference import Reference
from tests.e2e.stack import MODEL, Stack

MAX_TOKENS = 12


@pytest.fixture(scope="module")
def reference(model_path: Path) -> Reference:
    return Reference.load(model_path)


@pytest.fixture(scope="module")
def expected(reference: Reference) -> list[tuple[list[int], list[int]]]:
    """(prompt ids, answer ids) of the hundred prompts."""
    prompts = [reference.encode(text) for text in hundred()]
    return list(zip(prompts, reference.greedy_all(prompts, MAX_TOKENS), strict=True))


@pytest.fixture(scope="module", params=["shm", "tcp"])
def over(request: pytest.FixtureRequest, running: Stack) -> Stack:
    """The running stack with KV over one transport."""
    kv = running.config.setdefault("kv", {})
    if kv.setdefault("transport", "shm") != request.param:
        kv["transport"] = request.param
        running.write_config()
        running.up()
    return running


def _answers(stack: Stack, prompts: list[list[int]], concurrency: int) -> list[list[int]]:
    """Token ids of the greedy answers, asked of the gateway."""

    def ask(ids: list[int]) -> list[int]:
        body = {"model": MODEL, "prompt": ids, "max_tokens": MAX_TOKENS, "temperature": 0, "return_token_ids": True}
        answer = client.post(f"{stack.gateway}/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        tokens: list[int] = answer.json()["choices"][0]["token_ids"]
        return tokens

    with _client(stack) as client, ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(ask, prompts))


def _client(stack: Stack) -> httpx.Client:
    return httpx.Client(headers={"Authorization": f"Bearer {stack.api_key}"}, timeout=180)


@pytest.mark.parametrize("concurrency", [1, 16])
def test_greedy_equals_transformers(
    over: Stack, reference: Reference, expected: list[tuple[list[int], list[int]]], concurrency: int
) -> None:
    transport = over.config["kv"]["transport"]
    pulled = over.metric("decode-worker-0", "diphase_kv_transfers_total", transport=transport, outcome="ok")
    got = _answers(over, [ids for ids, _ in expected], concurrency)
    ties = sum(
        reference.assert_equal(ids, answer, wanted, f"prompt {index}")
        for index, ((ids, wanted), answer) in enumerate(zip(expected, got, strict=True))
    )
    print(f"{transport}, {concurrency} at once: {len(got)} answers equal, {ties} of them up to a tie")
    # An answer of one token (end of text at once) needs no decode; every other one moved its KV over this transport.
    needed = sum(len(wanted) > 1 for _, wanted in expected)
    moved = over.metric("decode-worker-0", "diphase_kv_transfers_total", transport=transport, outcome="ok") - pulled
    assert moved == needed


def test_seeded_sampling_equals_one_engine(over: Stack, reference: Reference) -> None:
    """The same request, once through both workers and once whole at the decode worker."""
    with _client(over) as client:
        for seed, text in enumerate(hundred()[::9]):
            body = {
                "model": MODEL,
                "prompt": reference.encode(text),
                "max_tokens": MAX_TOKENS,
                "temperature": 0.9,
                "top_p": 0.9,
                "top_k": 40,
                "seed": seed,
                "frequency_penalty": 0.5,
                "presence_penalty": 0.2,
                "return_token_ids": True,
            }
            whole = client.post(f"{over.urls['decode-worker-0']}/v1/completions", json=body)
            split = client.post(f"{over.gateway}/v1/completions", json=body)
            assert whole.status_code == split.status_code == 200, (whole.text, split.text)
            assert split.json()["choices"][0]["token_ids"] == whole.json()["choices"][0]["token_ids"], text
