"""The scheduler over HTTP: heartbeats of workers, placements and releases of gateways, its state for people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from services.common import logs
from services.common.errors import DiphaseError
from services.common.http_server import App, Request, Response, json_response
from services.common.settings import SchedulerSettings
from services.common.wire import Heartbeat, HeartbeatAnswer, PlaceRequest, ReleaseRequest
from services.scheduler import metrics
from services.scheduler.core import Limits, Scheduler
from services.scheduler.report import report
from services.scheduler.waiting import Ticket

TICK_SECONDS = 0.1  # how late a deadline or a worker's silence may be noticed
STILL_SECONDS = 15.0  # without a tick for so long, a replica counts as dead: nobody's wait would end in it
BODY_LIMIT = 1024 * 1024  # bytes; a heartbeat lists the ids of some thousand requests at most
_log = logs.get()


class SchedulerApp:
    """One replica: its decisions in `core`, its routes in `app`."""

    def __init__(self, settings: SchedulerSettings, clock: Callable[[], float] = monotonic) -> None:
        self._instance = settings.instance
        self._clock = clock
        limits = Limits(
            settings.scheduler_max_queue,
            settings.scheduler_heartbeat_timeout_seconds,
            settings.scheduler_absent_grace_seconds,
        )
        self.core = Scheduler(limits, clock())
        self._refused: set[str] = set()  # engine ids whose refusal is logged
        metrics.watch(self.core, clock)
        self._ticked = clock()
        # Ready as soon as it serves: workers that lack are the workers' not being ready.
        self.app = App(health=self._health)
        self.app.route("POST", "/v1/heartbeat", self._heartbeat)
        self.app.route("POST", "/v1/place", self._place)
        self.app.route("POST", "/v1/release", self._release)
        self.app.route("GET", "/v1/workers", self._workers)

    async def run_ticks(self) -> None:
        """Let time pass for the core; runs until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.core.tick(self._clock())
            self._ticked = self._clock()

    async def drain(self) -> None:
        """Send those who wait to another replica."""
        self.core.close()

    def _health(self) -> str | None:
        still = self._clock() - self._ticked
        return None if still < STILL_SECONDS else f"deadlines and silences have not been looked after for {still:.0f} s"

    async def _heartbeat(self, request: Request) -> Response:
        beat = await request.json(Heartbeat, limit=BODY_LIMIT)
        try:
            paired = self.core.heartbeat(beat, self._clock())
        except DiphaseError as error:
            metrics.REFUSED.labels(error.code).inc()
            self._log_refusal(beat, error)
            raise
        return json_response(HeartbeatAnswer(paired))

    def _log_refusal(self, beat: Heartbeat, error: DiphaseError) -> None:
        if beat.engine_id not in self._refused:
            if len(self._refused) >= 1000:
                self._refused.clear()
            self._refused.add(beat.engine_id)
            _log.warning("worker_refused", worker=beat.worker_id, engine=beat.engine_id, reason=error.message)

    async def _place(self, request: Request) -> Response:
        wanted = await request.json(PlaceRequest, limit=BODY_LIMIT)
        ticket = self.core.place(wanted, self._clock())
        outcome = "cancelled"
        try:
            await _settled(ticket)
            if isinstance(ticket.outcome, DiphaseError):
                outcome = ticket.outcome.code
                _log.debug("not_placed", request_id=wanted.request_id, phase=wanted.phase, outcome=outcome)
                raise ticket.outcome
            outcome = "placed"
            return json_response(ticket.outcome)
        finally:
            if outcome == "cancelled":  # the caller has gone, perhaps just when its placement was made
                self.core.cancel(ticket, self._clock())
            metrics.PLACEMENTS.labels(wanted.phase, outcome).inc()
            metrics.WAIT_SECONDS.labels(wanted.phase).observe(self._clock() - ticket.since)

    async def _release(self, request: Request) -> Response:
        wanted = await request.json(ReleaseRequest, limit=BODY_LIMIT)
        return json_response({"released": self.core.release(wanted.request_id, wanted.phase, self._clock())})

    async def _workers(self, _request: Request) -> Response:
        return json_response(report(self.core, self._instance, self._clock()))


async def _settled(ticket: Ticket) -> None:
    """Wait for the ticket's outcome; the core sets one by the ticket's deadline."""
    if ticket.outcome is None:
        settled = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not settled.done():
                settled.set_result(None)

        ticket.notify = wake
        await settled
