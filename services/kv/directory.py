"""Where the KV of a request lies: a bounded map from request id to handle, with the time as an argument.

It is soft state, for people and tools that ask; the handle itself travels with the request.
"""

from __future__ import annotations

from collections import OrderedDict

from services.common.wire import KvTransferParams


class HandleDirectory:
    """At most `max_handles` handles, each for `ttl_seconds`; when full, the oldest gives way. Not thread-safe."""

    def __init__(self, *, max_handles: int, ttl_seconds: float) -> None:
        self._max_handles = max_handles
        self._ttl_seconds = ttl_seconds
        self._entries: OrderedDict[str, tuple[KvTransferParams, float]] = OrderedDict()  # the first expires first

    def put(self, request_id: str, handle: KvTransferParams, now: float) -> int:
        """Register a handle in place of an earlier one of the request; returns how many others gave way."""
        self._expire(now)
        self._entries.pop(request_id, None)
        evicted = 0
        while len(self._entries) >= self._max_handles:
            self._entries.popitem(last=False)
            evicted += 1
        self._entries[request_id] = handle, now + self._ttl_seconds
        return evicted

    def get(self, request_id: str, now: float) -> KvTransferParams | None:
        """The handle, or None."""
        self._expire(now)
        entry = self._entries.get(request_id)
        return None if entry is None else entry[0]

    def remove(self, request_id: str, now: float) -> bool:
        """Forget a handle; tells whether there was one."""
        self._expire(now)
        return self._entries.pop(request_id, None) is not None

    def count(self, now: float) -> int:
        """Handles registered."""
        self._expire(now)
        return len(self._entries)

    def _expire(self, now: float) -> None:
        while self._entries:
            request_id, (_, expires_at) = next(iter(self._entries.items()))
            if now < expires_at:
                return
            del self._entries[request_id]
