"""The scheduler's metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from services.common.metrics import REGISTRY, SECONDS
from services.common.wire import Phase
from services.scheduler.core import PHASES, Scheduler
from services.scheduler.registry import State
from services.scheduler.waiting import WaitQueue

QUEUE_LENGTH = Gauge("diphase_scheduler_queue_length", "Requests that wait for a worker", ["phase"], registry=REGISTRY)
QUEUED_TOKENS = Gauge(
    "diphase_scheduler_queued_tokens", "Prompt tokens of the requests that wait for a worker", ["phase"],
    registry=REGISTRY,
)  # fmt: skip
WAIT_SECONDS = Histogram(
    "diphase_scheduler_wait_seconds", "Time until a request was placed or refused", ["phase"],
    buckets=SECONDS, registry=REGISTRY,
)  # fmt: skip
PLACEMENTS = Counter(
    "diphase_scheduler_placements", "Requests to place, by outcome: placed, cancelled or the error's code",
    ["phase", "outcome"], registry=REGISTRY,
)  # fmt: skip
WORKERS = Gauge("diphase_scheduler_workers", "Workers known", ["phase", "state"], registry=REGISTRY)
HELD = Gauge("diphase_scheduler_placements_held", "Placements of this replica that count now", registry=REGISTRY)
REFUSED = Counter(
    "diphase_scheduler_heartbeats_refused", "Heartbeats answered with an error", ["code"], registry=REGISTRY
)


def watch(scheduler: Scheduler, clock: Callable[[], float]) -> None:
    """Let the gauges read this scheduler whenever they are scraped, on its event loop."""
    HELD.set_function(scheduler.held)
    for phase in PHASES:
        QUEUE_LENGTH.labels(phase).set_function(partial(len, scheduler.queues[phase]))
        QUEUED_TOKENS.labels(phase).set_function(partial(_tokens, scheduler.queues[phase]))
        for state in get_args(State):
            WORKERS.labels(phase, state).set_function(partial(_count, scheduler, clock, phase, state))


def _tokens(queue: WaitQueue) -> float:
    return sum(ticket.request.prompt_tokens for ticket in queue)


def _count(scheduler: Scheduler, clock: Callable[[], float], phase: Phase, state: State) -> float:
    registry, now = scheduler.registry, clock()
    return sum(w.beat.phase == phase and registry.state(w, now) == state for w in registry.workers())
