"""What one worker holds as this replica sees it: reported by the worker, placed on it since, less what was released.

A heartbeat is up to half a second old, so it alone is never the truth: a placement counts at once although the worker
has not reported it, and a release counts at once although heartbeats sent before it still list the request.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from services.common.wire import Heartbeat, PlaceRequest

PLACED_SECONDS = 5.0  # how long a placement counts that its worker has not reported: the gateway may have died
RELEASED_SECONDS = 2.0  # how long a release outlives the heartbeats: after four of them the worker is to be believed
WAITING_SHARE = 8  # one place in so many of a batch is filled ahead, so that a step need not run short of a request


class Need(NamedTuple):
    """What a request takes of a worker: KV blocks, and prompt tokens to compute."""

    blocks: int
    tokens: int


class View(NamedTuple):
    """A worker's load, as policies see it."""

    requests: int
    slots: int
    kv_blocks_free: int
    kv_blocks: int
    queued_tokens: int


class Placed(msgspec.Struct):
    """One placement of this replica."""

    need: Need
    at: float
    reported: bool = False


class Worker:
    """One engine of one worker. Times are those that the caller passes, in seconds on any one clock."""

    def __init__(self, beat: Heartbeat, now: float) -> None:
        self.placed: dict[str, Placed] = {}
        self._released: dict[str, tuple[float, int]] = {}  # when, and the blocks that this frees, if known
        self._leased = 0  # blocks of requests that came and went since the last heartbeat, and left their KV here
        self._view: View | None = None
        self.useful_at = float("-inf")  # when it last said that it takes requests
        self.pair = (beat.revision, beat.layout.fingerprint)
        capacity = beat.capacity
        self.slots = capacity.max_running + min(capacity.max_waiting, capacity.max_running // WAITING_SHARE)
        self.observe(beat, now)

    def observe(self, beat: Heartbeat, now: float) -> list[str]:
        """Take a heartbeat in; returns the own placements that the worker held once and holds no more."""
        self.beat, self.beat_at = beat, now
        if not beat.draining:
            self.useful_at = now
        self._active = frozenset(beat.load.active)
        self._leased = 0
        gone = []
        for request_id, placed in self.placed.items():
            if request_id in self._active:
                placed.reported = True
            elif placed.reported:
                gone.append(request_id)
        for request_id in gone:
            del self.placed[request_id]
        self._view = None
        return gone + self.expire(now)

    def expire(self, now: float) -> list[str]:
        """Forget what is too old; returns the placements that the worker never reported."""
        lost = [i for i, p in self.placed.items() if not p.reported and now - p.at > PLACED_SECONDS]
        for request_id in lost:
            del self.placed[request_id]
        stale = [i for i, (at, _) in self._released.items() if now - at > RELEASED_SECONDS]
        for request_id in stale:
            del self._released[request_id]
        if lost or stale:
            self._view = None
        return lost

    def take(self, request_id: str, need: Need, now: float) -> None:
        """Count a placement."""
        self._released.pop(request_id, None)
        self.placed[request_id] = Placed(need, now, request_id in self._active)
        self._view = None

    def release(self, request_id: str, now: float) -> bool:
        """Stop counting a request, whoever placed it; returns whether it counted until now. Idempotent."""
        placed = self.placed.pop(request_id, None)
        reported = request_id in self._active and request_id not in self._released
        if placed is None and not reported:
            return False
        blocks = placed.need.blocks if placed else 0
        if self.beat.phase == "prefill":  # the place is free, the blocks are not: decode has yet to pull them
            self._leased += 0 if request_id in self._active else blocks
            blocks = 0
        self._released[request_id] = (now, blocks)
        self._view = None
        return True

    @property
    def view(self) -> View:
        """The load now."""
        if self._view is None:
            self._view = self._compute()
        return self._view

    def _compute(self) -> View:
        load, kv_blocks = self.beat.load, self.beat.capacity.kv_blocks
        free, held, queued = load.kv_blocks_free - self._leased, 0, float(load.queued_tokens)
        over = [i for i in self._active if i in self._released]
        requests = len(self._active) - len(over)
        if over:
            free += sum(self._released[i][1] for i in over)
            queued *= requests / len(self._active)  # whose tokens were still to compute is not reported
        for request_id, placed in self.placed.items():
            held += placed.need.blocks
            if request_id not in self._active:
                requests += 1
                free -= placed.need.blocks
                queued += placed.need.tokens
        # A worker may reserve blocks as a sequence grows: what was promised is gone although it still looks free.
        return View(requests, self.slots, min(free, kv_blocks - held), kv_blocks, round(queued))

    def has_slot(self) -> bool:
        """Whether one more request may run here."""
        return self.view.requests < self.slots

    def fits(self, request: PlaceRequest) -> bool:
        """Whether this request may run here now."""
        view = self._view or self.view
        return view.requests < view.slots and self._blocks(request) <= view.kv_blocks_free

    def need(self, request: PlaceRequest) -> Need:
        """What the request takes of this worker."""
        return Need(self._blocks(request), request.prompt_tokens)

    def could_hold(self, request: PlaceRequest) -> bool:
        """Whether the request would fit here if the worker were empty."""
        capacity = self.beat.capacity
        tokens = request.prompt_tokens + request.max_tokens
        return tokens <= capacity.max_model_len and self._blocks(request) <= capacity.kv_blocks

    def _blocks(self, request: PlaceRequest) -> int:
        """Prefill keeps the KV of the prompt, decode that of the answer too."""
        answer = request.max_tokens if self.beat.phase == "decode" else 1
        return -(-(request.prompt_tokens + answer) // self.beat.layout.block_size)
