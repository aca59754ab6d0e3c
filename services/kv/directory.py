"""Where the KV of a request lies: a bounded map from request id to handle, with the time as an argument.

It is soft state, for people and tools that ask; the handle itself travels with the request.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from services.common.wire import KvTransferParams


@dataclass(frozen=True, slots=True)
class _Entry:
    handle: KvTransferParams
    expires_at: float


class HandleDirectory:
    """At most `max_handles` handles, each for `ttl_seconds`; when full, the oldest gives way. Not thread-safe."""

    def __init__(self, *, max_handles: int, ttl_seconds: float) -> None:
        self._max_handles = max_handles
        self._ttl_seconds = ttl_seconds
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the first to be put is the first to expire
        self.evicted = 0

    def __len__(self) -> int:
        """Handles held, those that expired since the last call included."""
        return len(self._entries)

    def put(self, request_id: str, handle: KvTransferParams, now: float) -> None:
        """Register a handle in place of an earlier one of the request."""
        self._expire(now)
        self._entries.pop(request_id, None)
        if len(self._entries) >= self._max_handles:
            self._entries.popitem(last=False)
            self.evicted += 1
        self._entries[request_id] = _Entry(handle, now + self._ttl_seconds)

    def get(self, request_id: str, now: float) -> KvTransferParams | None:
        """The handle, or None."""
        self._expire(now)
        entry = self._entries.get(request_id)
        return None if entry is None else entry.handle

    def remove(self, request_id: str) -> bool:
        """Forget a handle; tells whether there was one."""
        return self._entries.pop(request_id, None) is not None

    def _expire(self, now: float) -> None:
        while self._entries:
            request_id, entry = next(iter(self._entries.items()))
            if now < entry.expires_at:
                return
            del self._entries[request_id]
