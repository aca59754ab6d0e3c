"""What a replica knows, for people and for `diphase verify`: the answer of GET /v1/workers."""

from __future__ import annotations

import msgspec

from services.common.wire import Phase
from services.scheduler.core import Scheduler
from services.scheduler.registry import State


class WorkerReport(msgspec.Struct):
    """One worker; times in seconds."""

    worker_id: str
    engine_id: str
    phase: Phase
    url: str
    model: str
    revision: str
    layout: str
    state: State
    silent_for: float
    requests: int
    slots: int
    queued_tokens: int
    kv_blocks_free: int
    kv_blocks: int
    placed_here: int


class Report(msgspec.Struct):
    """One replica."""

    instance: str
    draining: bool
    placements: int
    waiting: dict[Phase, int]
    workers: list[WorkerReport]


def report(scheduler: Scheduler, instance: str, now: float) -> Report:
    """The state now, workers in order of their ids."""
    workers = []
    for worker in sorted(scheduler.registry.workers(), key=lambda known: known.beat.worker_id):
        beat, view = worker.beat, worker.view
        workers.append(
            WorkerReport(
                worker_id=beat.worker_id,
                engine_id=beat.engine_id,
                phase=beat.phase,
                url=beat.url,
                model=beat.model,
                revision=beat.revision,
                layout=worker.pair[1],
                state=scheduler.registry.state(worker, now),
                silent_for=round(now - worker.beat_at, 3),
                requests=view.requests,
                slots=view.slots,
                queued_tokens=view.queued_tokens,
                kv_blocks_free=view.kv_blocks_free,
                kv_blocks=view.kv_blocks,
                placed_here=len(worker.placed),
            )
        )
    waiting = {phase: len(queue) for phase, queue in scheduler.queues.items()}
    return Report(instance, scheduler.closed, scheduler.held(), waiting, workers)
