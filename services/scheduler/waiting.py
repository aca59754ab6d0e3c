"""Requests that wait for a worker: first come first served, save that a small one may pass a big one a few times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from services.common.errors import DiphaseError
from services.common.wire import Placement, PlaceRequest
from services.scheduler.load import Worker

MAX_OVERTAKEN = 16  # how often one that fits nowhere is passed before a worker is kept free for it
STREAM_ROOM = 4096  # waiters of streams that have begun, beyond the queue's bound: against leaks, not a throttle
RATE_WINDOW = 64  # placements over which the queue's speed is taken
RETRY_AFTER = (1.0, 60.0)  # seconds: the bounds of what a client is told


class Ticket:
    """One request to place: `outcome` is None while it waits, and `notify` is called once when it is set."""

    __slots__ = ("deadline", "notify", "outcome", "overtaken", "request", "since", "worker")

    def __init__(self, request: PlaceRequest, now: float) -> None:
        self.request = request
        self.since = now
        self.deadline = now + request.timeout
        self.outcome: Placement | DiphaseError | None = None
        self.notify: Callable[[], None] | None = None
        self.worker: Worker | None = None  # where it was placed
        self.overtaken = 0

    def settle(self, outcome: Placement | DiphaseError) -> None:
        """Set the outcome and wake who waits for it."""
        self.outcome = outcome
        if self.notify is not None:
            self.notify()


class WaitQueue:
    """The tickets that wait for one phase, and the workers that are kept free for the patient ones among them."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._tickets: dict[str, Ticket] = {}  # by request id, in order of arrival
        self._reserved: dict[str, Ticket] = {}  # by engine id
        self._left: deque[float] = deque(maxlen=RATE_WINDOW)

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(list(self._tickets.values()))

    def get(self, request_id: str) -> Ticket | None:
        """The ticket of a request that waits."""
        return self._tickets.get(request_id)

    def full_for(self, request: PlaceRequest) -> bool:
        """Whether this request would have to be turned away."""
        return len(self) >= self.bound + (STREAM_ROOM if request.must_wait else 0)

    def add(self, ticket: Ticket) -> None:
        """Append a ticket whose request id does not wait yet."""
        self._tickets[ticket.request.request_id] = ticket

    def remove(self, ticket: Ticket) -> None:
        """Take a ticket out, and its reservation back; unknown ones are ignored."""
        if self._tickets.get(ticket.request.request_id) is ticket:
            del self._tickets[ticket.request.request_id]
            for engine_id in [engine for engine, holder in self._reserved.items() if holder is ticket]:
                del self._reserved[engine_id]

    # -- fairness
    def open_to(self, worker: Worker, ticket: Ticket) -> bool:
        """Whether the worker is not kept free for somebody else."""
        return self._reserved.get(worker.beat.engine_id, ticket) is ticket

    def reserve(self, ticket: Ticket, candidates: list[Worker]) -> None:
        """Keep one of the candidates free for the ticket, if it has none yet: that which is nearest to have room."""
        if ticket in self._reserved.values():
            return
        free = [worker for worker in candidates if worker.beat.engine_id not in self._reserved]
        if free:
            best = max(free, key=lambda worker: worker.view.kv_blocks_free)
            self._reserved[best.beat.engine_id] = ticket

    def keep_reservations(self, usable: set[str]) -> None:
        """Drop the reservations of engines that are not in `usable`, so that another is found."""
        for engine_id in self._reserved.keys() - usable:
            del self._reserved[engine_id]

    # -- speed
    def note_placed(self, now: float) -> None:
        """Count a placement, waited for or not."""
        self._left.append(now)

    def retry_after(self, now: float) -> float:
        """Seconds in which the queue as it is now will have been served, at the speed of the last placements."""
        low, high = RETRY_AFTER
        if len(self._left) < 2:
            return low
        speed = len(self._left) / max(now - self._left[0], 1e-3)
        return min(high, max(low, (len(self) + 1) / speed))
