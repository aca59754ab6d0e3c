"""The ports of a role: one that serves, by TLS if need be, and a plain one for probes that outlives the drain."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from services.common import logs
from services.common.http_protocol import BoundedProtocol
from services.common.http_server import App
from services.common.tls import Certificates

HANDSHAKE_SECONDS = 10.0  # how long a client may take until its connection is secure
GOODBYE_SECONDS = 2.0  # how long a connection that we close waits for the client to agree
_log = logs.get()


class Server(uvicorn.Server):
    """Serves `app` on `port`, by TLS if there is `tls`, and the app's probes on `probe_port` if there is one.

    It has no signal handlers: who runs it sets `should_exit`. A port that cannot be had ends the process.
    """

    def __init__(
        self,
        app: App,
        host: str,
        port: int,
        *,
        tls: Certificates | None = None,
        probe_port: int | None = None,
        drain_seconds: float = 30.0,
    ) -> None:
        super().__init__(_config(app, host, port, drain_seconds))
        self._tls = tls
        self._probes = None if probe_port is None else _config(app.probes(), host, probe_port, drain_seconds)
        self._prober: asyncio.Server | None = None
        self._prober_state = ServerState()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None are."""
        yield

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Listen: first where the role serves, so that no probe tells of a port that is not open."""
        self.servers = []
        listening = sockets[0] if sockets else None
        self.servers.append(await _listen(self.config, self.server_state, self._tls, listening))
        if self._probes is not None:
            self._prober = await _listen(self._probes, self._prober_state)
        self.started = True
        scheme, at = "https" if self._tls else "http", f"{self.config.host}:{self.config.port}"
        _log.info("serving", url=f"{scheme}://{at}", probe_port=self._probes and self._probes.port)

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Take nothing new, let what runs end in its time, and only then end the probes."""
        await super().shutdown(list(sockets) if sockets else None)
        if self._prober is not None:
            self._prober.close()
            for connection in list(self._prober_state.connections):
                connection.transport.abort()


def _config(app: App, host: str, port: int, drain_seconds: float) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=BoundedProtocol,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
    )
    config.load()
    return config


async def _listen(
    config: uvicorn.Config,
    state: ServerState,
    tls: Certificates | None = None,
    listening: socket.socket | None = None,
) -> asyncio.Server:
    where: dict[str, Any] = {"sock": listening} if listening else {"host": config.host, "port": config.port}
    if tls is not None:
        where |= {
            "ssl": tls.server,
            "ssl_handshake_timeout": HANDSHAKE_SECONDS,
            "ssl_shutdown_timeout": GOODBYE_SECONDS,
        }
    try:
        return await asyncio.get_running_loop().create_server(
            lambda: BoundedProtocol(config, state, {}), backlog=config.backlog, **where
        )
    except OSError as error:
        _log.critical("cannot_listen", host=config.host, port=config.port, error=str(error))
        sys.exit(1)
