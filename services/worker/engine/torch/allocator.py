"""Which KV blocks are free: a pure free list that refuses to hand out or take back a block twice."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable


class BlockAllocator:
    """Blocks 0 to num_blocks - 1. Safe to use from several threads.

    Freed blocks are reused last, so that a stale reference to one finds it unchanged for as long as may be.
    """

    def __init__(self, num_blocks: int) -> None:
        self._free = deque(range(num_blocks))
        self._taken: set[int] = set()
        self._lock = threading.Lock()

    @property
    def num_free(self) -> int:
        """How many blocks nobody owns."""
        return len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """Take `count` blocks, or None (and take nothing) if there are fewer."""
        with self._lock:
            if count > len(self._free):
                return None
            blocks = [self._free.popleft() for _ in range(count)]
            self._taken.update(blocks)
            return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Give blocks back; raises ValueError, and takes none, if one of them is not taken or named twice."""
        returned = list(blocks)
        with self._lock:
            if len(set(returned)) != len(returned) or not self._taken.issuperset(returned):
                raise ValueError(f"blocks {returned}: each must be taken, and named once")
            self._taken.difference_update(returned)
            self._free.extend(returned)
