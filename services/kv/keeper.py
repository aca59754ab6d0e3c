"""The leases of one worker: the lease table with a lock, a clock, and the engine that takes blocks back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from services.common.errors import KvUnavailable
from services.kv.checksum import kv_checksum
from services.kv.lease import Lease, LeaseTable
from services.kv.pool import SharedPool


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """Leases at one moment; the last five only grow."""

    open: int
    blocks_held: int
    granted: int
    released: int
    expired: int
    replaced: int
    refused: int  # renewals and reads of a lease that was not there


class LeaseKeeper:
    """Thread-safe. `free` is the engine's; it is called without a lock held, from whichever thread ends a lease."""

    def __init__(
        self,
        pool: SharedPool,
        free: Callable[[Sequence[int]], None],
        *,
        lease_seconds: float,
        ttl_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.pool = pool
        self._free = free
        self._clock = clock
        self._table = LeaseTable(lease_seconds=lease_seconds, ttl_seconds=ttl_seconds)
        self._lock = threading.Lock()
        self._granted = self._refused = 0

    def grant(self, request_id: str, blocks: Sequence[int], num_tokens: int) -> Lease:
        """Keep blocks for whoever shows the lease's nonce; an earlier lease of the same request ends.

        Computes the checksum of all bytes, so call it off the event loop. Raises ValueError for ids outside the pool;
        then the blocks stay the caller's.
        """
        checksum = kv_checksum(self.pool.array, blocks)
        with self._lock:
            lease, freed = self._table.grant(
                request_id, blocks, self._clock(), num_tokens=num_tokens, kv_checksum=checksum
            )
            self._granted += 1
        self._give_back(freed)
        return lease

    def renew(self, request_id: str, nonce: str | None) -> float:
        """The Unix time at which the lease ends now; raises KvUnavailable where it is not open any more."""
        with self._lock, self._counting_refusals():
            return self._table.renew(request_id, nonce, self._clock())

    def release(self, request_id: str, nonce: str | None = None) -> None:
        """End a lease; without a nonce whichever the request has. Idempotent."""
        with self._lock:
            freed = self._table.release(request_id, nonce)
        self._give_back(freed)

    def sweep(self, now: float | None = None) -> None:
        """End what has expired; to be called every second or so."""
        with self._lock:
            freed = self._table.expire(self._clock() if now is None else now)
        self._give_back(freed)

    @contextmanager
    def reading(self, request_id: str, nonce: str) -> Iterator[Lease]:
        """The lease, its blocks pinned until the `with` ends; raises KvUnavailable where there is nothing to read."""
        with self._lock, self._counting_refusals():
            lease = self._table.begin_read(request_id, nonce, self._clock())
        try:
            yield lease
        finally:
            with self._lock:
                freed = self._table.end_read(lease)
            self._give_back(freed)

    def __len__(self) -> int:
        """Open leases."""
        with self._lock:
            return len(self._table)

    def counts(self) -> LeaseCounts:
        """What metrics show."""
        with self._lock:
            outcomes = self._table.outcomes
            return LeaseCounts(
                open=len(self._table),
                blocks_held=self._table.blocks_held,
                granted=self._granted,
                released=outcomes["released"],
                expired=outcomes["expired"],
                replaced=outcomes["replaced"],
                refused=self._refused,
            )

    @contextmanager
    def _counting_refusals(self) -> Iterator[None]:
        try:
            yield
        except KvUnavailable:
            self._refused += 1
            raise

    def _give_back(self, blocks: list[int]) -> None:
        if blocks:
            self._free(blocks)
