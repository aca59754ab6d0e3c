"""Serves an app on a free port of the loopback, inside the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from services.common.http_ports import Server
from services.common.http_server import App
from services.common.tls import Certificates


class Served(Server):
    """A running server; `url` is where."""

    url: str
    port: int

    def cut(self) -> None:
        """End as a process does that is killed: no more connections, and those there are, are reset."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        self.should_exit = self.force_exit = True


@contextlib.asynccontextmanager
async def serving(
    app: App, port: int = 0, tls: Certificates | None = None, probe_port: int | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Served]:
    """The app under uvicorn, as in production."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    server = Served(app, host, port, tls=tls, probe_port=probe_port, drain_seconds=1.0)
    server.port = listening.getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://{host}:{server.port}"
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await until(lambda: server.started)
        yield server
    finally:
        server.should_exit = True
        await task
        listening.close()


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll; fails if it does not come about."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "did not come about in time"
        await asyncio.sleep(0.005)
