"""Who may read which KV blocks, and until when: the pure core of leases, with the time as an argument.

Every handoff has a lease. Its blocks go back on release, on expiry, or when the same request is granted another one,
but never while a transfer reads them: then the end of the last read gives them back. Each call returns the block ids
that are free from now on, each id once.
"""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from services.common.errors import KvUnavailable

Outcome = Literal["released", "expired", "replaced"]


@dataclass(slots=True)
class Lease:
    """Blocks kept for one request. `nonce` is its generation: a reference to an earlier one never matches."""

    request_id: str
    nonce: str
    blocks: tuple[int, ...]
    num_tokens: int
    kv_checksum: str
    granted_at: float
    expires_at: float
    readers: int = 0
    outcome: Outcome | None = None  # None while it is open


class LeaseTable:
    """All leases of one pool. A lease lives `lease_seconds` unless renewed, `ttl_seconds` at most. Not thread-safe."""

    def __init__(
        self,
        *,
        lease_seconds: float,
        ttl_seconds: float,
        new_nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._lease_seconds = lease_seconds
        self._ttl_seconds = ttl_seconds
        self._new_nonce = new_nonce
        self._open: dict[str, Lease] = {}  # by request id
        self._ended: dict[str, Lease] = {}  # by nonce: no longer open, but still read
        self.outcomes: Counter[Outcome] = Counter()

    def __len__(self) -> int:
        """Open leases."""
        return len(self._open)

    @property
    def blocks_held(self) -> int:
        """Blocks not given back yet, those of ended leases that are still read included."""
        return sum(len(lease.blocks) for table in (self._open, self._ended) for lease in table.values())

    def grant(
        self, request_id: str, blocks: Sequence[int], now: float, *, num_tokens: int = 0, kv_checksum: str = ""
    ) -> tuple[Lease, list[int]]:
        """A new lease, and the blocks of the one that it replaces."""
        freed = self._end(request_id, "replaced") if request_id in self._open else []
        expires_at = now + min(self._lease_seconds, self._ttl_seconds)
        lease = Lease(request_id, self._new_nonce(), tuple(blocks), num_tokens, kv_checksum, now, expires_at)
        self._open[request_id] = lease
        return lease, freed

    def renew(self, request_id: str, nonce: str | None, now: float) -> float:
        """Extend a lease; returns when it ends now. Raises KvUnavailable where it is not open any more."""
        lease = self._find(request_id, nonce, now)
        lease.expires_at = max(lease.expires_at, min(now + self._lease_seconds, lease.granted_at + self._ttl_seconds))
        return lease.expires_at

    def release(self, request_id: str, nonce: str | None = None) -> list[int]:
        """End a lease; without a nonce whichever the request has. Unknown and earlier ones are ignored."""
        lease = self._open.get(request_id)
        if lease is None or not (nonce is None or _same(nonce, lease.nonce)):
            return []
        return self._end(request_id, "released")

    def expire(self, now: float) -> list[int]:
        """End what has expired."""
        gone = [request_id for request_id, lease in self._open.items() if now >= lease.expires_at]
        return [block for request_id in gone for block in self._end(request_id, "expired")]

    def begin_read(self, request_id: str, nonce: str, now: float) -> Lease:
        """Pin the blocks until `end_read`; raises KvUnavailable where there is nothing to read, and says why."""
        lease = self._find(request_id, nonce, now)
        lease.readers += 1
        return lease

    def end_read(self, lease: Lease) -> list[int]:
        """The counterpart of `begin_read`, exactly once for each."""
        if lease.readers < 1:
            raise ValueError(f"nobody reads the lease of {lease.request_id}")
        lease.readers -= 1
        if lease.readers or lease.outcome is None:
            return []
        del self._ended[lease.nonce]
        return list(lease.blocks)

    def _find(self, request_id: str, nonce: str | None, now: float) -> Lease:
        lease = self._open.get(request_id)
        if lease is None:
            raise KvUnavailable(f"no KV is kept for {request_id}: it was released, it expired, or it was never here")
        if nonce is None or not _same(nonce, lease.nonce):
            raise KvUnavailable(f"the reference to the KV of {request_id} is of an earlier lease")
        if now >= lease.expires_at:
            raise KvUnavailable(f"the lease of {request_id} expired {now - lease.expires_at:.1f} s ago")
        return lease

    def _end(self, request_id: str, outcome: Outcome) -> list[int]:
        lease = self._open.pop(request_id)
        lease.outcome = outcome
        self.outcomes[outcome] += 1
        if lease.readers:
            self._ended[lease.nonce] = lease
            return []
        return list(lease.blocks)


def _same(nonce: str, other: str) -> bool:
    return hmac.compare_digest(nonce.encode(), other.encode())
