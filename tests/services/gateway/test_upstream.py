"""A worker's stream gives the same steps however it is cut into reads, and its errors keep their kind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common import errors
from services.common.errors import DiphaseError, EngineFailed, UpstreamFailed
from services.common.http_client import HttpClient
from services.common.http_server import App, Request, Response, Stream
from services.common.wire import Choice, CompletionRequest, CompletionResponse, Logprobs
from services.gateway.upstream import Step, Workers
from tests.services.common.serving import serving

BODY = CompletionRequest(model="m", prompt=[1], max_tokens=9, stream=True)


def event(token_ids: list[int], finish_reason: str | None = None) -> bytes:
    logprobs = Logprobs([f"token_id:{token}" for token in token_ids], [-1.0] * len(token_ids))
    choice = Choice(token_ids=token_ids, logprobs=logprobs, finish_reason=finish_reason)
    return b"data: " + msgspec.json.encode(CompletionResponse("id", "m", [choice])) + b"\n\n"


WHOLE = b": hello\n\n" + event([1]) + event([2, 3]) + event([], None) + event([4], "stop") + b"data: [DONE]\n\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":4,"total_tokens":5}}\n\n'


async def steps_of(parts: list[bytes]) -> list[Step]:
    """What the gateway makes of a stream that is written in these parts."""

    async def items() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
            await asyncio.sleep(0.002)

    async def post(_request: Request) -> Response | Stream:
        return Stream(items())

    app = App()
    app.route("POST", "/v1/completions", post)
    client = HttpClient()
    async with serving(app) as served:
        try:
            async with Workers(client).stream(served.url, BODY, [], 10.0) as steps:
                return [step async for step in steps]
        finally:
            await client.close()


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(1, len(WHOLE) - 1), max_size=6))
def test_any_cut(cuts: list[int]) -> None:
    bounds = sorted({0, len(WHOLE), *cuts})
    steps = asyncio.run(steps_of([WHOLE[a:b] for a, b in itertools.pairwise(bounds)]))
    assert [token for step in steps for token in step.token_ids] == [1, 2, 3, 4]
    assert [name for step in steps if step.logprobs for name in step.logprobs.tokens] == [
        f"token_id:{i}" for i in (1, 2, 3, 4)
    ]
    assert [step.finish_reason for step in steps][-1] == "stop"


def test_usage_alone_is_no_step() -> None:
    steps = asyncio.run(steps_of([event([1], "length"), USAGE, b"data: [DONE]\n\n"]))
    assert [(step.token_ids, step.finish_reason) for step in steps] == [([1], "length")]


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([event([1])], UpstreamFailed),
        ([event([1]), b"data: " + EngineFailed("x").body() + b"\n\n"], EngineFailed),
        ([event([1]), b"data: {nonsense}\n\n"], UpstreamFailed),
        ([b'data: {"error":{"message":"x","type":"y","code":"unheard"}}\n\n'], UpstreamFailed),
    ],
)
def test_streams_that_go_wrong(parts: list[bytes], kind: type[DiphaseError]) -> None:
    with pytest.raises(kind):
        asyncio.run(steps_of(parts))


def test_errors_in_events_keep_their_kind() -> None:
    body = errors.ErrorBody("gone", "server_error", None, "kv_unavailable")
    assert isinstance(errors.from_event(body, "peer"), errors.KvUnavailable)
