"""Clients that hang up at random moments cost the others nothing and leave nothing behind."""

from __future__ import annotations

import random
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from tests.e2e.stack import MODEL, Stack

REQUESTS = 200
CONCURRENCY = 16
KINDS = 8
NO_TLS = ssl.create_default_context()  # made once: each client would read all authorities, which takes 30 ms


@dataclass(frozen=True)
class Ask:
    kind: int
    hang_up_after: float | None  # seconds
    stream: bool


def _body(ask: Ask) -> dict[str, object]:
    prompt = f"Number {ask.kind}: " + "tell me more " * (1 + 4 * ask.kind)
    return {"model": MODEL, "prompt": prompt, "max_tokens": 4 + 2 * ask.kind, "temperature": 0, "stream": ask.stream}


def _run(stack: Stack, key: str, ask: Ask) -> str | None:
    """The text, or None where the client hung up."""
    limit = 180.0 if ask.hang_up_after is None else ask.hang_up_after
    try:
        with (
            httpx.Client(timeout=httpx.Timeout(180.0, read=limit), verify=NO_TLS) as client,
            client.stream(
                "POST", f"{stack.gateway}/v1/completions", json=_body(ask), headers={"Authorization": f"Bearer {key}"}
            ) as answer,
        ):
            text = ""
            for line in answer.iter_lines():
                if not ask.stream:
                    text += line
                elif line.startswith("data: {"):
                    text += httpx.Response(200, content=line[6:]).json()["choices"][0]["text"]
            assert answer.status_code == 200, text
    except httpx.ReadTimeout:
        assert ask.hang_up_after is not None
        return None
    return text if ask.stream else httpx.Response(200, content=text).json()["choices"][0]["text"]


def test_two_hundred_requests_a_tenth_of_them_cut(stack: Stack) -> None:
    chance = random.Random(20)
    key = stack.api_key
    expected = [_run(stack, key, Ask(kind, None, stream=False)) for kind in range(KINDS)]
    asks = [
        Ask(chance.randrange(KINDS), chance.uniform(0.01, 1.0) if index % 10 == 0 else None, chance.random() < 0.5)
        for index in range(REQUESTS)
    ]
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        got = list(pool.map(lambda ask: _run(stack, key, ask), asks))
    wrong = [
        (ask, text, expected[ask.kind])
        for ask, text in zip(asks, got, strict=True)
        if text is not None and text != expected[ask.kind]
    ]
    assert not wrong
    assert sum(text is not None for text in got) >= REQUESTS * 9 // 10
    assert any(text is None for text in got), "nobody hung up: the test proves nothing"
