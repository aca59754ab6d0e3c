"""One connection of the HTTP client, and the watch over its silence."""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from services.common.errors import UpstreamFailed

PAUSE_AT = 256 * 1024  # bytes of a stream that may wait for their reader before the socket is paused


class Connection(asyncio.Protocol):
    """One connection; serves one exchange at a time. `wake` is set whenever there is news for the waiting side."""

    transport: asyncio.Transport

    def __init__(self, peer: str, loop: asyncio.AbstractEventLoop, generation: int = 0) -> None:
        self.peer = peer
        self.loop = loop
        self.generation = generation  # of the certificates that it was made with; 0 for none of ours
        self.open = False
        self.used = False
        self.idle_since: float | None = None  # None while an exchange runs
        self.heard_at = 0.0
        self.parser = httptools.HttpResponseParser(self)
        self.wake: asyncio.Future[None] | None = None
        self.reset()

    def reset(self) -> None:
        """Ready for the next exchange."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.buffered = 0
        self.paused = False
        self.complete = False
        self.keep = False
        self.failure: Exception | None = None

    # -- asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self.fail(UpstreamFailed(f"{self.peer} closed the connection" + (f": {exc}" if exc else "")))

    def data_received(self, data: bytes) -> None:
        if self.idle_since is not None:  # nobody asked: the next answer on this connection could not be trusted
            self.transport.abort()
            return
        self.heard_at = self.loop.time()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(UpstreamFailed(f"{self.peer} does not answer in HTTP: {error}"))
            self.transport.abort()
            return
        if self.buffered > PAUSE_AT and not self.paused and not self.complete:
            self.paused = True
            self.transport.pause_reading()
        self._notify()

    # -- httptools
    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()  # from here on the exchange counts as answered

    def on_body(self, body: bytes) -> None:
        self.chunks.append(body)
        self.buffered += len(body)

    def on_message_complete(self) -> None:
        self.keep = self.parser.should_keep_alive()
        self.complete = True

    # -- for the client
    def fail(self, error: Exception) -> None:
        """End the exchange with an error, unless it is complete."""
        if not self.complete and self.failure is None:
            self.failure = error
        self._notify()

    def _notify(self) -> None:
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    async def news(self) -> None:
        """Wait until data, the end, or a failure has come."""
        self.wake = self.loop.create_future()
        try:
            await self.wake
        finally:
            self.wake = None

    def take(self) -> bytes:
        """What has arrived since the last call, as one piece."""
        data = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
        self.chunks = []
        self.buffered = 0
        if self.paused and self.open:
            self.paused = False
            self.transport.resume_reading()
        return data


class SilenceWatch:
    """Fails a connection that brings nothing for some time; one timer for each such time, none for each read."""

    def __init__(self, connection: Connection, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self.timer = connection.loop.call_later(seconds, self._check)

    def _check(self) -> None:
        connection = self._connection
        now = connection.loop.time()
        since = now if connection.paused else connection.heard_at
        if now - since >= self._seconds:
            connection.fail(UpstreamFailed(f"{connection.peer} sent nothing for {self._seconds:.0f} s"))
            return
        self.timer = connection.loop.call_at(since + self._seconds, self._check)
