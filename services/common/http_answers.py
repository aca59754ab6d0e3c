"""How the server writes answers: whole, and as streams with keepalives and an error event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from services.common import logs
from services.common.errors import ClientTooSlow, DiphaseError

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream"
STALLED_SECONDS = 60.0  # how long the client of a stream with `silence` may leave what it was sent unread
Headers = tuple[tuple[bytes, bytes], ...]
Send = Callable[[dict[str, Any]], Awaitable[None]]
_log = logs.get()


@dataclass(slots=True)
class Response:
    """An answer that is known whole."""

    body: bytes = b""
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = ()


@dataclass(slots=True)
class Stream:
    """An answer that is written as it comes; each item is sent at once.

    `items.aclose()` is awaited on every path, also before the first item was asked for. An async generator that never
    began does not run its `finally` then: where something must be given back, use a class with `aclose`.

    With `silence` (seconds) the status is sent with the first item, so that an error before it is answered with a
    status of its own; after so long without an item the stream begins, or goes on, with `keepalive`.
    An error after the beginning is sent as `error_event(error)` and ends the stream; without it the connection is cut.
    """

    items: AsyncIterator[bytes]
    content_type: bytes = EVENT_STREAM
    headers: Headers = ()
    silence: float = 0.0
    keepalive: bytes = b": keepalive\n\n"
    error_event: Callable[[DiphaseError], bytes] | None = None


def json_response(value: object, status: int = 200) -> Response:
    """`value` (a struct, a dict, …) as JSON."""
    return Response(msgspec.json.encode(value), status)


@dataclass(slots=True)
class Outcome:
    """What became of a request, for the metrics, and what the stages of answering it tell one another."""

    route: str = "unknown"
    status: int = 500
    begun: bool = False  # the status line is sent
    headers: Headers = ()  # of the stream, so that an error in its place carries them too


def internal_error() -> DiphaseError:
    """What a client is told of a fault of ours."""
    return DiphaseError("internal error; this role's log has the details")


def error_response(error: DiphaseError, headers: Headers = ()) -> Response:
    """An error as it is answered, with `headers` beside its own."""
    if error.retry_after is not None:
        headers = (*headers, (b"retry-after", b"%d" % max(1, round(error.retry_after))))
    if error.status == ClientTooSlow.status:
        headers = (*headers, (b"connection", b"close"))  # the rest of the body is not waited for
    return Response(error.body(), error.status, JSON, headers)


async def respond(send: Send, response: Response) -> None:
    """Write an answer whole."""
    headers = [
        (b"content-type", response.content_type),
        (b"content-length", b"%d" % len(response.body)),
        *response.headers,
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def stream_out(send: Send, stream: Stream, outcome: Outcome) -> None:
    """Write a stream to its end; raises what its items raise unless it could be told as an event."""
    writer = _Writer(send, stream, outcome)
    try:
        if not stream.silence:
            await writer.begin()
        async for item in stream.items:
            await writer.write(item)
        await writer.end()
    except Exception as error:  # whatever it is, a reader in the middle of a stream is told
        if not outcome.begun or stream.error_event is None:
            raise
        if not isinstance(error, DiphaseError):
            _log.exception("stream_failed", route=outcome.route)
            error = internal_error()
        await writer.write(stream.error_event(error))
        await writer.end()
        outcome.status = error.status
    finally:
        writer.stop()
        close = getattr(stream.items, "aclose", None)
        if close is not None:
            await close()


class _Writer:
    """Writes a stream and its keepalives; one timer for each silence, none for each item."""

    def __init__(self, send: Send, stream: Stream, outcome: Outcome) -> None:
        self._send, self._stream, self._outcome = send, stream, outcome
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._writing = False
        self._task = asyncio.current_task()
        self._beat: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(stream.silence, self._tick) if stream.silence else None

    async def begin(self) -> None:
        """Send the status, once."""
        if self._outcome.begun:
            return
        self._outcome.begun, self._outcome.status = True, 200
        stream = self._stream
        headers = [(b"content-type", stream.content_type), (b"cache-control", b"no-cache"), *stream.headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, item: bytes) -> None:
        """Send an item; waits while the client does not read."""
        self._writing = True
        await self.begin()
        await self._send({"type": "http.response.body", "body": item, "more_body": True})
        self._writing = False
        self._last = self._loop.time()

    async def end(self) -> None:
        """Send the end of the body."""
        self.stop()
        await self.begin()
        await self._send({"type": "http.response.body", "body": b""})

    def stop(self) -> None:
        """No more keepalives."""
        if self._timer is not None:
            self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()

    def _tick(self) -> None:
        now, silence = self._loop.time(), self._stream.silence
        if self._writing:
            if now - self._last > STALLED_SECONDS and self._task is not None:
                self._task.cancel()  # the client has stopped reading: what the request holds is given back
                return
        elif now - self._last >= silence - 1e-3:
            self._last = now
            self._beat = self._loop.create_task(self._keepalive())
        due = now + silence if self._writing else self._last + silence
        self._timer = self._loop.call_at(due, self._tick)

    async def _keepalive(self) -> None:
        await self.begin()
        await self._send({"type": "http.response.body", "body": self._stream.keepalive, "more_body": True})
