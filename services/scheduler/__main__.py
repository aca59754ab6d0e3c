"""Runs one scheduler replica: `python -m services.scheduler`, settings from the environment."""

from __future__ import annotations

import asyncio

from services.common import role
from services.common.settings import SchedulerSettings
from services.common.tls import Certificates
from services.scheduler.app import SchedulerApp


async def _main(settings: SchedulerSettings) -> None:
    scheduler = SchedulerApp(settings)
    tls = Certificates.of("internal", settings.tls_folder)
    ticks = asyncio.create_task(scheduler.run_ticks())
    try:
        await role.serve(scheduler.app, settings, scheduler.drain, tls)
    finally:
        ticks.cancel()


if __name__ == "__main__":
    role.run("scheduler", SchedulerSettings, _main)
