"""Work that outlives its request, such as releases: each has a deadline, their number is bounded, none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from services.common import logs
from services.common.errors import DiphaseError

MAX_TASKS = 10_000
_log = logs.get()


class Background:
    """Tasks that nobody awaits. What they give back expires by itself, so a failure is logged and no more."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, object], what: str) -> None:
        """Run `work`, which has a deadline of its own."""
        if len(self._tasks) >= MAX_TASKS:
            work.close()
            _log.warning("background_full", what=what)
            return
        task = asyncio.get_running_loop().create_task(self._run(work, what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout: float) -> None:
        """Wait for what runs, at most `timeout` seconds, and end the rest."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=timeout)
            for task in late:
                task.cancel()

    @staticmethod
    async def _run(work: Coroutine[Any, Any, object], what: str) -> None:
        try:
            await work
        except DiphaseError as error:
            _log.warning("background_failed", what=what, error=error.message)
