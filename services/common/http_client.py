"""The one HTTP client: a pool of keep-alive connections over httptools, with a deadline on every call.

It exists because the client is what a relay costs: any general client takes several times the CPU of this one
(docs/decisions/0003-own-http-client.md). It speaks HTTP/1.1 with a body that is known in advance, and nothing more.

What is raised: UpstreamFailed where the peer cannot be reached, breaks off or answers no HTTP; DeadlineExceeded where
the time given ran out. A status of 400 or more is an answer, not an exception; `Reply.raise_for_status` makes it one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from services.common import errors
from services.common.errors import DeadlineExceeded, UpstreamFailed
from services.common.http_connection import Connection, SilenceWatch
from services.common.tls import INTERNAL_NAME, Certificates

Headers = Iterable[tuple[str, str]]
MAX_BODY = 64 * 1024 * 1024  # bytes of an answer that is read whole
IDLE_SECONDS = 50.0  # below the 75 s after which our servers close an idle connection


@dataclass(slots=True)
class Reply:
    """An answer read whole."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    def raise_for_status(self, peer: str) -> Reply:
        """Itself, or the error that the peer answered."""
        if self.status >= 400:
            raise errors.from_response(self.status, self.body, peer)
        return self


class StreamReply:
    """An answer whose body is read as it comes; iterate once. Each item is what one read of the socket brought."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers = connection.headers

    def __aiter__(self) -> StreamReply:
        return self

    async def __anext__(self) -> bytes:
        connection = self._connection
        while True:
            if connection.chunks:
                return connection.take()
            if connection.failure is not None:
                raise connection.failure
            if connection.complete:
                raise StopAsyncIteration
            await connection.news()

    async def read(self) -> bytes:
        """The rest of the body, at most MAX_BODY bytes."""
        parts, size = [], 0
        async for part in self:
            parts.append(part)
            size += len(part)
            if size > MAX_BODY:
                raise UpstreamFailed(f"{self._connection.peer} sent more than {MAX_BODY} bytes")
        return b"".join(parts)


class HttpClient:
    """Connections to any number of peers. Not thread-safe; lives on one event loop.

    With `certificates`, what https leads to is another role: it must show a certificate of our CA, and is shown ours.
    Without, it is a server of the world's, verified by its name and `tls`, or else by the CAs that the system knows.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = 2.0,
        max_idle: int = 64,
        tls: ssl.SSLContext | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self._connect_timeout = connect_timeout
        self._max_idle = max_idle
        self._tls = tls
        self._certificates = certificates
        self._idle: dict[str, list[Connection]] = {}

    async def request(
        self, method: str, url: str, body: bytes = b"", *, headers: Headers = (), timeout: float
    ) -> Reply:
        """One exchange, read whole; `timeout` is the deadline of it all, in seconds."""
        async with self.stream(method, url, body, headers=headers, timeout=timeout) as reply:
            return Reply(reply.status, await reply.read(), reply.headers)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Headers = (),
        timeout: float,
        silence: float | None = None,
    ) -> AsyncGenerator[StreamReply]:
        """One exchange; entered when the status is known. `timeout` is the deadline until the last byte, in seconds.

        A peer that sends nothing for `silence` seconds once it has answered counts as failed.
        Leaving before the end closes the connection, which tells the peer to stop.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await self._exchange(method, url, body, headers, deadline)
        peer = connection.peer
        expired = DeadlineExceeded(f"{peer} did not finish its answer within {timeout:.1f} s")
        timer = loop.call_at(deadline, connection.fail, expired)
        watch = None if silence is None else SilenceWatch(connection, silence)
        try:
            yield StreamReply(connection)
        finally:
            timer.cancel()
            if watch is not None:
                watch.timer.cancel()
            self._put_back(peer, connection)

    async def close(self) -> None:
        """Close what is idle."""
        for pool in self._idle.values():
            for connection in pool:
                connection.transport.abort()
        self._idle.clear()
        await asyncio.sleep(0)

    async def _exchange(self, method: str, url: str, body: bytes, headers: Headers, deadline: float) -> Connection:
        """Send the request and wait for the status; a stale pooled connection is replaced once."""
        parts = urlsplit(url)
        peer = f"{parts.scheme}://{parts.netloc}"
        head = _head(method, parts.path + (f"?{parts.query}" if parts.query else ""), parts.netloc, headers, len(body))
        loop = asyncio.get_running_loop()
        connection = self._take_idle(peer)
        while True:
            connection = connection or await self._connect(peer, deadline)
            fresh = not connection.used
            connection.used = True
            connection.reset()
            timer = loop.call_at(deadline, connection.fail, DeadlineExceeded(f"{peer} did not answer in time"))
            try:
                connection.transport.write(head + body)
                while not connection.status:
                    if connection.failure is not None:
                        raise connection.failure
                    await connection.news()
                return connection
            except UpstreamFailed:
                connection.transport.abort()
                if fresh or connection.status:
                    raise
                connection = None  # it was stale: once more, on a new one
            except BaseException:
                connection.transport.abort()
                raise
            finally:
                timer.cancel()

    def _take_idle(self, peer: str) -> Connection | None:
        pool = self._idle.get(peer, [])
        now = asyncio.get_running_loop().time()
        while pool:
            connection = pool.pop()
            if connection.open and connection.idle_since is not None and now - connection.idle_since < IDLE_SECONDS:
                connection.idle_since = None
                return connection
            connection.transport.abort()
        return None

    async def _connect(self, peer: str, deadline: float) -> Connection:
        parts = urlsplit(peer)
        loop = asyncio.get_running_loop()
        limit = min(self._connect_timeout, max(0.0, deadline - loop.time()))
        secure: dict[str, Any] = {}
        generation = 0
        if parts.scheme == "https":
            secure["ssl"] = self._tls or True
            if self._certificates is not None:
                secure = {"ssl": self._certificates.client(), "server_hostname": INTERNAL_NAME}
                generation = self._certificates.generation
        try:
            async with asyncio.timeout(limit):
                _, connection = await loop.create_connection(
                    lambda: Connection(peer, loop, generation),
                    parts.hostname or "",
                    parts.port or (443 if secure else 80),
                    **secure,
                )
        except TimeoutError:
            if loop.time() >= deadline:
                raise DeadlineExceeded(f"no connection to {peer} before the deadline") from None
            raise UpstreamFailed(f"no connection to {peer} within {limit:.1f} s") from None
        except OSError as error:
            raise UpstreamFailed(f"no connection to {peer}: {error.strerror or error}") from None
        return connection

    def _put_back(self, peer: str, connection: Connection) -> None:
        pool = self._idle.setdefault(peer, [])
        whole = connection.complete and connection.keep and not connection.chunks and connection.open
        if connection.generation and self._certificates is not None:
            whole = whole and connection.generation == self._certificates.generation  # else they are history
        if not whole or len(pool) >= self._max_idle:
            connection.transport.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        pool.append(connection)


def _head(method: str, path: str, host: str, headers: Headers, length: int) -> bytes:
    lines = [f"{method} {path or '/'} HTTP/1.1", f"Host: {host}", f"Content-Length: {length}"]
    if length:
        lines.append("Content-Type: application/json")
    for name, value in headers:
        if "\r" in value or "\n" in value:
            raise ValueError(f"header {name} holds a line break")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
