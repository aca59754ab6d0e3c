"""A place at a worker, for one leg: asked of a scheduler, given back on every path."""

from __future__ import annotations

import asyncio
from types import TracebackType

from services.common.errors import Absent, Saturated
from services.common.wire import Phase, Placement, PlaceRequest
from services.gateway.background import Background
from services.gateway.job import Job
from services.gateway.retries import Retries
from services.gateway.schedulers import Schedulers


class Slot:
    """Used as a context manager around the leg."""

    def __init__(
        self, schedulers: Schedulers, background: Background, job: Job, retries: Retries, leg_id: str, phase: Phase
    ) -> None:
        self._schedulers, self._background = schedulers, background
        self._job, self._retries = job, retries
        self._leg_id, self._phase = leg_id, phase
        self._held_at: str | None = None  # URL of the replica to tell

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, _type: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.release()

    async def take(self, output_tokens: int, revision: str | None = None, layout: str | None = None) -> Placement:
        """Wait for a worker. Raises Saturated and Absent only if nothing was answered yet, and DeadlineExceeded."""
        job, retries, tries = self._job, self._retries, 0
        while True:
            left = retries.remaining()
            request = PlaceRequest(
                request_id=self._leg_id,
                phase=self._phase,
                model=job.model,
                prompt_tokens=len(job.prompt) + output_tokens,
                max_tokens=job.max_tokens - output_tokens,
                timeout=left,
                exclude=retries.excluded,
                revision=revision,
                layout=layout,
                must_wait=output_tokens > 0,
            )
            try:
                placement, self._held_at = await self._schedulers.place(request)
                return placement
            except (Saturated, Absent):
                if not output_tokens:
                    raise
            except asyncio.CancelledError:
                self._held_at = self._schedulers.preferred  # the answer may have been on its way
                raise
            tries += 1
            await retries.pause(tries)

    def release(self) -> None:
        """Tell the scheduler that the slot is free."""
        url, self._held_at = self._held_at, None
        if url is not None:
            self._background.spawn(self._schedulers.release(url, self._leg_id, self._phase), "release of a slot")
