"""A role's process: its settings, its logs, its event loop, and its server until the drain is over."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from services.common import logs
from services.common.http_ports import Server
from services.common.http_server import App
from services.common.settings import RoleSettings, SettingsError
from services.common.tls import Certificates

CUT_SECONDS = 1.0  # how long handlers that were cut at the end of the drain may take to give back what they hold
S = TypeVar("S", bound=RoleSettings)
_log = logs.get()


def run(name: str, settings_type: type[S], main: Callable[[S], Coroutine[Any, Any, None]]) -> None:
    """Read the role's settings from the environment and run its main coroutine on uvloop.

    Settings that are wrong end the process with a sentence; after a drain it ends with status 0.
    """
    import uvloop

    try:
        settings = settings_type.from_environ(os.environ)
        logs.configure(settings.instance, settings.log_level)
        uvloop.run(main(settings))
    except SettingsError as error:
        sys.exit(f"{name}: {error}")


async def serve(
    app: App,
    settings: RoleSettings,
    drain: Callable[[], Awaitable[None]] | None = None,
    tls: Certificates | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; then `/ready` fails, `drain` is awaited, running requests end, within
    `drain_seconds` together, and last the probes. A second signal ends at once. `tls` is the port's.
    """
    if settings.exit_with_parent:
        _exit_with_parent()
    if tls is not None:
        app.require(tls.fault)
    server = Server(
        app,
        settings.host,
        settings.port,
        tls=tls,
        probe_port=settings.probe_port,
        drain_seconds=settings.drain_seconds,
    )
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    async def stop() -> None:
        app.draining = True
        started = loop.time()
        if drain is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.drain_seconds):
                    await drain()
        left = settings.drain_seconds - (loop.time() - started)
        server.config.timeout_graceful_shutdown = max(1, round(left))  # uvicorn takes whole seconds
        server.should_exit = True

    def on_signal() -> None:
        _log.info("stopping", forced=bool(stopping))
        if stopping:
            server.force_exit = server.should_exit = True
        else:
            stopping.append(loop.create_task(stop()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await server.serve()
    cut = set() if server.force_exit else set(server.server_state.tasks)
    if cut:  # their time was over and they are cancelled: what they hold is given back before the role goes on
        await asyncio.wait(cut, timeout=CUT_SECONDS)


def _exit_with_parent() -> None:
    """Ask the kernel for SIGTERM when the process that started us dies, so that no role outlives its supervisor."""
    if not sys.platform.startswith("linux"):
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)
