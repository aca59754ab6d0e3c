"""`python -m services.worker`: run one worker; PHASE says which."""

from __future__ import annotations

import asyncio
import os
import sys

from services.common import logs
from services.common.http_server import run, serve
from services.common.settings import SettingsError, WorkerSettings
from services.worker.app import Worker


async def _main(settings: WorkerSettings) -> None:
    worker = Worker(settings)
    # The port opens before the model is loaded: one that is taken fails at once, and /ready tells the progress.
    serving = asyncio.create_task(serve(worker.app, settings, worker.drain))
    async with worker.running():
        await serving


def main() -> None:
    """Read the settings from the environment and serve until SIGTERM."""
    try:
        settings = WorkerSettings.from_environ(os.environ)
    except SettingsError as error:
        sys.exit(f"worker: {error}")
    logs.configure(settings.instance, settings.log_level)
    run(lambda: _main(settings))


if __name__ == "__main__":
    main()
