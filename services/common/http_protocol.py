"""A server's connection that does not outlive its client's interest: uvicorn's own has no bound for these cases."""

from __future__ import annotations

import asyncio
import socket
import sys

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

FIRST_HEAD_SECONDS = 75.0  # how long a new connection may take to send its first request's head
UNREAD_SECONDS = 60.0  # how long what was sent may stay unread, or a vanished client unnoticed, before the reset


class BoundedProtocol(HttpToolsProtocol):
    """Drops a client that asks nothing, and (on Linux) one that leaves its answer unread, however the answer ended."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNREAD_SECONDS * 1000))
        self._first_head = self.loop.call_later(FIRST_HEAD_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._first_head.cancel()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """It has asked for something."""
        self._first_head.cancel()
        super().on_headers_complete()
