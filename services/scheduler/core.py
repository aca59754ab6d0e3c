"""The scheduler's decisions, without I/O: time is an argument, so production, tests and a simulator run the same code.

A replica knows workers by their heartbeats and requests by its own placements. After each tick this holds: no request
that waits fits on any worker open to it. So a change needs to look only at the workers it touched, and `tick` at all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from services.common.errors import DiphaseError, Saturated
from services.common.wire import Heartbeat, Phase, Placement, PlaceRequest
from services.scheduler import refusal
from services.scheduler.load import Worker
from services.scheduler.policies import DEFAULT, POLICIES
from services.scheduler.registry import Registry
from services.scheduler.waiting import MAX_OVERTAKEN, Ticket, WaitQueue

PHASES: tuple[Phase, ...] = get_args(Phase)
EXCLUDED_SECONDS = 1.0  # an excluded engine that still beats after this may be tried again if there is no other


@dataclass(frozen=True, slots=True)
class Limits:
    """What SchedulerSettings sets."""

    max_queue: int = 256
    heartbeat_timeout: float = 2.5
    absent_grace: float = 30.0


class Scheduler:
    """One replica. Every method takes the time, in seconds on any one clock that does not go back."""

    def __init__(self, limits: Limits, now: float, seed: int | None = None) -> None:
        self.registry = Registry(limits.heartbeat_timeout, limits.absent_grace)
        self.queues = {phase: WaitQueue(limits.max_queue) for phase in PHASES}
        self.closed = False
        self._policies = {phase: POLICIES[name] for phase, name in DEFAULT.items()}
        self._knows_all_at = now + limits.heartbeat_timeout  # before, a worker unknown here may well exist
        self._held: dict[tuple[str, Phase], Ticket] = {}  # own placements
        self._random = random.Random(seed)  # noqa: S311 - draws lots, keeps no secret

    # -- what workers and gateways say
    def heartbeat(self, beat: Heartbeat, now: float) -> bool:
        """Take a heartbeat in; returns whether a worker of the other phase lives that can be paired with the sender.

        Raises Incompatible for a worker that could never be paired, InvalidRequest.
        """
        worker, ended = self.registry.observe(beat, now)
        self._forget(ended)
        self._dispatch(beat.phase, [worker], now)
        return self.registry.has_partner(worker, now)

    def place(self, request: PlaceRequest, now: float) -> Ticket:
        """Choose a worker or wait for one. The ticket's outcome is set at once or, later, before its deadline's tick.

        Outcomes: Placement; Saturated (queue full), Absent (no worker), Draining (this replica stops), ContextTooLong,
        Incompatible (who could decode this KV has gone), ModelNotFound, DeadlineExceeded, InvalidRequest. A request id
        has one ticket in a phase: a second one ends the first's wait and takes the first's place at its worker back.
        """
        ticket = Ticket(request, now)
        fault = self._unplaceable(ticket, now)
        if fault is not None:
            ticket.settle(fault)
            return ticket
        self._supersede(request, now)
        queue = self.queues[request.phase]
        worker = self._choose(ticket, self.registry.role(request.phase, request.model).values(), now)
        if worker is not None:
            self._assign(ticket, worker, queue, now)
        elif (fault := self._hopeless(request, now)) is not None:
            ticket.settle(fault)
        elif queue.full_for(request):
            ticket.settle(Saturated(retry_after=queue.retry_after(now)))
        else:
            queue.add(ticket)
        return ticket

    def cancel(self, ticket: Ticket, now: float) -> None:
        """The caller has gone: leave the queue, or give back what it was given. Idempotent."""
        request = ticket.request
        self.queues[request.phase].remove(ticket)
        if self._held.get((request.request_id, request.phase)) is ticket:
            self.release(request.request_id, request.phase, now)

    def release(self, request_id: str, phase: Phase, now: float) -> bool:
        """The request no longer uses its place; returns whether it counted until now.

        A replica that did not place it stops counting it too, at whichever workers report it.
        """
        holder = self._held.pop((request_id, phase), None)
        workers = (
            [holder.worker]
            if holder and holder.worker
            else [w for w in self.registry.workers() if w.beat.phase == phase]
        )
        freed = [worker for worker in workers if worker.release(request_id, now)]
        self._dispatch(phase, freed, now)
        return bool(freed)

    def tick(self, now: float) -> None:
        """What only time changes: workers fall silent, placements are never taken up, deadlines pass. Call often."""
        self._forget(self.registry.expire(now))
        usable = {w.beat.engine_id for w in self.registry.workers() if self.registry.state(w, now) == "live"}
        for phase, queue in self.queues.items():
            if not queue:
                continue
            queue.keep_reservations(usable)
            hopeless: dict[tuple[object, ...], DiphaseError | None] = {}  # the same for many
            for ticket in queue:
                r = ticket.request
                kind = (r.model, r.revision, r.layout, r.must_wait, refusal.needs_partner(r))
                if kind not in hopeless:
                    hopeless[kind] = self._hopeless(r, now)
                fault = self._unplaceable(ticket, now) or hopeless[kind]
                if fault is not None:
                    queue.remove(ticket)
                    ticket.settle(fault)
            self._dispatch(phase, [w for w in self.registry.workers() if w.beat.phase == phase], now)

    def close(self) -> None:
        """This replica stops: who waits is sent to another one, and so is who comes."""
        self.closed = True
        for queue in self.queues.values():
            for ticket in queue:
                queue.remove(ticket)
                ticket.settle(refusal.closing())

    def held(self) -> int:
        """Own placements that count now."""
        return len(self._held)

    # -- placing
    def _dispatch(self, phase: Phase, workers: list[Worker], now: float) -> None:
        """Give the room on `workers` to those who wait."""
        queue = self.queues[phase]
        if not queue:
            return
        passed: list[Ticket] = []
        for ticket in queue:
            workers = [worker for worker in workers if worker.has_slot()]
            if not workers:
                return
            mine = [w for w in workers if w.beat.model == ticket.request.model]
            worker = self._choose(ticket, mine, now)
            if worker is None:
                passed.append(ticket)
            else:
                queue.remove(ticket)
                self._assign(ticket, worker, passed, now)

    def _choose(self, ticket: Ticket, workers: Iterable[Worker], now: float) -> Worker | None:
        """Filter, score, pick: the best of `workers` (of the request's phase and model) with room, or None."""
        request, queue = ticket.request, self.queues[ticket.request.phase]
        score = self._policies[request.phase]
        best: list[Worker] = []
        lowest: tuple[float, float] | None = None
        pressure = self._pressure(request, now)
        for worker in workers:
            if not worker.fits(request) or not queue.open_to(worker, ticket):
                continue
            if not self._usable(ticket, worker, now):
                continue
            value = (pressure.get(worker.pair, 0.0), score(request, worker.view))
            if lowest is None or value < lowest:
                best, lowest = [worker], value
            elif value == lowest:
                best.append(worker)
        if len(best) < 2:
            return best[0] if best else None
        return self._random.choice(best)

    def _usable(self, ticket: Ticket, worker: Worker, now: float) -> bool:
        return self._eligible(ticket, worker, now) and self._allowed(ticket, worker, now)

    def _eligible(self, ticket: Ticket, worker: Worker, now: float) -> bool:
        """Whether the worker serves such requests at all: it lives, is of the same pair, and has a partner."""
        request = ticket.request
        if self.registry.state(worker, now) != "live" or not refusal.same_pair(request, worker):
            return False
        if not worker.could_hold(request):
            return False
        return not refusal.needs_partner(request) or worker.pair in self.registry.shares(request.model, now)

    def _allowed(self, ticket: Ticket, worker: Worker, now: float) -> bool:
        """An engine that failed this request is tried again only if there is no other and it has lived on since."""
        exclude = ticket.request.exclude
        if worker.beat.engine_id not in exclude:
            return True
        if worker.beat_at < ticket.since + EXCLUDED_SECONDS:
            return False
        role = self.registry.role(ticket.request.phase, ticket.request.model).values()
        return not any(w.beat.engine_id not in exclude and self._eligible(ticket, w, now) for w in role)

    def _pressure(self, request: PlaceRequest, now: float) -> dict[tuple[str, str], float]:
        """While several pairs serve (a rollout): how full each is for its share of the traffic. Else empty."""
        if request.phase != "prefill":
            return {}
        shares = self.registry.shares(request.model, now)
        if len(shares) < 2:
            return {}
        active = dict.fromkeys(shares, 0)
        for phase in PHASES:
            for worker in self.registry.role(phase, request.model).values():
                if worker.pair in active:
                    active[worker.pair] += worker.view.requests
        return {pair: active[pair] / share for pair, share in shares.items()}

    def _assign(self, ticket: Ticket, worker: Worker, passed: Iterable[Ticket], now: float) -> None:
        request, queue = ticket.request, self.queues[ticket.request.phase]
        worker.take(request.request_id, worker.need(request), now)
        self._held[request.request_id, request.phase] = ticket
        queue.note_placed(now)
        for earlier in passed:
            if earlier.request.model == request.model and self._usable(earlier, worker, now):
                self._overtake(earlier, now)
        ticket.worker = worker
        beat = worker.beat
        revision, layout = worker.pair
        ticket.settle(
            Placement(beat.worker_id, beat.engine_id, beat.url, revision, layout, beat.hands_over_first_token)
        )

    def _overtake(self, earlier: Ticket, now: float) -> None:
        """Count that a later one was given what this one could use; at last keep a worker free for it."""
        request = earlier.request
        earlier.overtaken += 1
        if earlier.overtaken >= MAX_OVERTAKEN:
            role = self.registry.role(request.phase, request.model).values()
            self.queues[request.phase].reserve(earlier, [w for w in role if self._usable(earlier, w, now)])

    def _supersede(self, request: PlaceRequest, now: float) -> None:
        earlier = self.queues[request.phase].get(request.request_id)
        if earlier is not None:
            self.queues[request.phase].remove(earlier)
            earlier.settle(refusal.used_again(request))
        if (request.request_id, request.phase) in self._held:
            self.release(request.request_id, request.phase, now)

    def _forget(self, ended: list[tuple[str, Worker]]) -> None:
        for request_id, worker in ended:
            ticket = self._held.get((request_id, worker.beat.phase))
            if ticket is not None and ticket.worker is worker:
                del self._held[request_id, worker.beat.phase]

    # -- refusing
    def _unplaceable(self, ticket: Ticket, now: float) -> DiphaseError | None:
        """What stands against the request whatever the workers' load is."""
        if self.closed:
            return refusal.closing()
        if now >= ticket.deadline:
            return refusal.too_late(ticket.request)
        fault = refusal.malformed(ticket.request)
        if fault is None and now >= self._knows_all_at:
            return refusal.too_long(self.registry, ticket.request)
        return fault

    def _hopeless(self, request: PlaceRequest, now: float) -> DiphaseError | None:
        """Why waiting for room would be in vain."""
        if now < self._knows_all_at:
            return None
        fault = refusal.superseded(self.registry, request, now)
        if fault is not None or request.must_wait:
            return fault
        return refusal.absence(self.registry, request, now)
