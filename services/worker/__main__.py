"""`python -m services.worker`: run one worker; PHASE says which."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from services.common import role
from services.common.settings import WorkerSettings
from services.common.tls import Certificates
from services.worker.app import Worker


async def _main(settings: WorkerSettings) -> None:
    tls = Certificates.of("internal", settings.tls_folder)
    worker = Worker(settings, tls)
    # The port opens before the model is loaded: one that is taken fails at once, and /ready tells the progress.
    serving = asyncio.create_task(_serve(worker, settings, tls))
    async with contextlib.AsyncExitStack() as held:
        loading = asyncio.create_task(held.enter_async_context(worker.running()))
        await asyncio.wait((serving, loading), return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            # Told to stop. Loading takes long and cannot be interrupted; it holds nothing that outlives the process.
            os._exit(serving.result())
        await loading
        status = await serving
    sys.exit(status)


async def _serve(worker: Worker, settings: WorkerSettings, tls: Certificates | None) -> int:
    """The process's exit status; in a task of its own, where SystemExit would tear down the loop."""
    try:
        await role.serve(worker.app, settings, worker.drain, tls)
    except SystemExit as failed:  # the port is taken, as the log says by now
        return failed.code if isinstance(failed.code, int) else 1
    return 0


if __name__ == "__main__":
    role.run("worker", WorkerSettings, _main)
