"""What a request remembers of legs that failed: whom to avoid, how long to pause, when to give up."""

from __future__ import annotations

import asyncio
import random

from services.common import logs
from services.common.errors import (
    Absent,
    DeadlineExceeded,
    DiphaseError,
    Draining,
    Incompatible,
    InvalidRequest,
    KvUnavailable,
    Saturated,
)
from services.common.wire import Phase, Placement
from services.gateway import metrics
from services.gateway.job import Job

MAX_FAILURES = 12  # with the pauses between them well over the ten seconds that a worker may need to restart
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds
_log = logs.get()


class Retries:
    """The memory of one request, and its deadline."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._loop = asyncio.get_running_loop()
        self.excluded: list[str] = []  # engines that failed this request; schedulers use them only if no other is left
        self.failures = 0
        self.refusals = 0

    @property
    def total(self) -> int:
        """Legs that did not do what they were sent for."""
        return self.failures + self.refusals

    def remaining(self) -> float:
        """Seconds until the deadline; raises DeadlineExceeded past it."""
        left = self._job.deadline - self._loop.time()
        if left <= 0:
            raise DeadlineExceeded(
                "the request's deadline passed before its answer was whole: try again later, or ask for fewer tokens"
            )
        return left

    def exclude(self, engine_id: str) -> None:
        """Avoid an engine from now on."""
        if engine_id not in self.excluded:
            self.excluded.append(engine_id)

    async def after(self, error: DiphaseError, placement: Placement, phase: Phase) -> None:
        """Return, after a pause, if the leg may be tried again; else raise what the client is told."""
        metrics.failed_legs.labels(phase, error.code).inc()
        _log.warning(
            "leg_failed",
            request_id=self._job.request_id,
            phase=phase,
            worker=placement.worker_id,
            reason=error.code,
            error=error.message,
        )
        if isinstance(error, InvalidRequest):
            raise error
        if isinstance(error, Saturated | Draining):
            self.refusals += 1
            self.exclude(placement.engine_id)
            await self.pause(self.refusals)
            return
        self._count()
        if not isinstance(error, KvUnavailable):
            self.exclude(placement.engine_id)
        await self.pause(self.failures)

    async def pair_gone(self, error: Incompatible) -> None:
        """Return, after a pause, if prefill may run again because nobody is left to decode what it has made."""
        metrics.failed_legs.labels("decode", error.code).inc()
        _log.warning("pair_gone", request_id=self._job.request_id, error=error.message)
        self._count()
        await self.pause(self.failures)

    def _count(self) -> None:
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            raise Absent(f"no worker could answer in {self.failures} tries: try again in a few seconds")

    async def pause(self, tries: int) -> None:
        """Wait before trying again: doubled each time, and at random, so that many requests do not come at once."""
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 10)) * random.uniform(0.5, 1.0)  # noqa: S311
        await asyncio.sleep(min(pause, self.remaining()))
