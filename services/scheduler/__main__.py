"""Runs one scheduler replica: `python -m services.scheduler`, settings from the environment."""

from __future__ import annotations

import asyncio
import os

from services.common import http_server, logs
from services.common.settings import SchedulerSettings, SettingsError
from services.scheduler.app import SchedulerApp


async def main() -> None:
    """Serve until told to stop."""
    try:
        settings = SchedulerSettings.from_environ(os.environ)
    except SettingsError as error:
        raise SystemExit(f"scheduler: {error}") from None
    logs.configure(settings.instance, settings.log_level)
    scheduler = SchedulerApp(settings)
    ticks = asyncio.create_task(scheduler.run_ticks())
    try:
        await http_server.serve(scheduler.app, settings, scheduler.drain)
    finally:
        ticks.cancel()


if __name__ == "__main__":
    http_server.run(main)
