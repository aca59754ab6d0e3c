"""What the gateway asks of schedulers and workers, each as one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from services.common import errors
from services.common.errors import DeadlineExceeded, DiphaseError, ErrorBody, UpstreamFailed
from services.common.http_client import Headers, HttpClient, StreamReply
from services.common.wire import (
    CompletionRequest,
    CompletionResponse,
    LeaseAnswer,
    LeaseRequest,
    Logprobs,
)

CALL_SECONDS = 5.0  # of a call that answers at once: release, renew
SILENCE_SECONDS = 60.0  # a decode stream that brings nothing for so long counts as dead
_encode = msgspec.json.Encoder().encode
_completion = msgspec.json.Decoder(CompletionResponse).decode
_lease = msgspec.json.Decoder(LeaseAnswer).decode


@dataclass(slots=True)
class Step:
    """What one read from a worker brought."""

    token_ids: list[int]
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Workers:
    """Calls to workers; raises the error that a worker answers."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def complete(
        self, url: str, request: CompletionRequest, headers: Headers, timeout: float
    ) -> CompletionResponse:
        """An answer read whole: the prefill leg."""
        reply = await self._client.request(
            "POST", f"{url}/v1/completions", _encode(request), headers=headers, timeout=timeout
        )
        try:
            answer = _completion(reply.raise_for_status(url).body)
        except msgspec.DecodeError as error:
            raise UpstreamFailed(f"{url} answered no completion: {error}") from None
        if not answer.choices:
            raise UpstreamFailed(f"{url} answered no choice")
        return answer

    @asynccontextmanager
    async def stream(
        self, url: str, request: CompletionRequest, headers: Headers, timeout: float
    ) -> AsyncGenerator[AsyncGenerator[Step]]:
        """The steps of the decode leg; entered when the worker has taken the request."""
        async with self._client.stream(
            "POST",
            f"{url}/v1/completions",
            _encode(request),
            headers=headers,
            timeout=timeout,
            silence=SILENCE_SECONDS,
        ) as reply:
            if reply.status >= 400:
                raise errors.from_response(reply.status, await reply.read(), url)
            async with aclosing(_steps(reply, url)) as steps:
                yield steps

    async def renew(self, url: str, request_id: str, nonce: str | None) -> float:
        """Make a lease longer; returns the Unix time at which it ends."""
        body = _encode(LeaseRequest(request_id, nonce))
        reply = await self._client.request("POST", f"{url}/v1/kv/renew", body, timeout=CALL_SECONDS)
        try:
            return _lease(reply.raise_for_status(url).body).expires_at
        except msgspec.DecodeError as error:
            raise UpstreamFailed(f"{url} answered no lease: {error}") from None

    async def release(self, url: str, request_id: str, nonce: str | None) -> None:
        """Give a lease back."""
        body = _encode(LeaseRequest(request_id, nonce))
        (await self._client.request("POST", f"{url}/v1/kv/release", body, timeout=CALL_SECONDS)).raise_for_status(url)


class _Choice(msgspec.Struct, gc=False):
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    """The part of an event that is looked at; the rest is skipped, which is cheaper than decoding all of it."""

    choices: list[_Choice] = []
    error: ErrorBody | None = None


_event = msgspec.json.Decoder(_Event).decode


async def _steps(reply: StreamReply, url: str) -> AsyncGenerator[Step]:
    """One step for each read, ending with the stream's last; raises where the stream breaks off before that."""
    rest = b""
    async for data in reply:
        *events, rest = (rest + data if rest else data).split(b"\n\n")
        step: Step | None = None
        for event in events:
            if event.startswith(b"data: {"):
                step = _join(step, event[6:], url)
            elif event == b"data: [DONE]":
                if step is not None:
                    yield step
                await _read_end(reply)
                return
        if step is not None:
            yield step
    raise UpstreamFailed(f"{url} ended its stream without an end")


async def _read_end(reply: StreamReply) -> None:
    """Wait for the last bytes, so that the connection can serve again; a worker that is late loses it."""
    with suppress(TimeoutError, UpstreamFailed):
        async with asyncio.timeout(0.25):
            async for _ in reply:
                pass


def _join(step: Step | None, data: bytes, url: str) -> Step | None:
    try:
        event = _event(data)
    except msgspec.DecodeError as error:
        raise UpstreamFailed(f"{url} sent no event: {error}") from None
    if event.error is not None:
        _raise(event.error, url)
    if not event.choices:
        return step  # usage alone
    choice = event.choices[0]
    if step is None:
        return Step(choice.token_ids or [], choice.logprobs, choice.finish_reason)
    step.token_ids += choice.token_ids or []
    step.finish_reason = choice.finish_reason or step.finish_reason
    if choice.logprobs is not None and step.logprobs is not None:
        step.logprobs.tokens += choice.logprobs.tokens
        step.logprobs.token_logprobs += choice.logprobs.token_logprobs
        step.logprobs.top_logprobs += choice.logprobs.top_logprobs
    elif choice.logprobs is not None:
        step.logprobs = choice.logprobs
    return step


def _raise(error: ErrorBody, url: str) -> NoReturn:
    found: DiphaseError = errors.from_event(error, url)
    if isinstance(found, DeadlineExceeded):
        raise DeadlineExceeded(f"{url}: {found.message}")
    raise found
