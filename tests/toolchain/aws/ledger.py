"""What was not done as on AWS, to be shown at the end: planned and never made, kept and never run; and waits."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Types that were only planned, objects of a cluster that were kept, and seconds by operation and type."""

    planned: set[str] = field(default_factory=set)
    kept: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def took(self, operation: str, kind: str, seconds: float) -> None:
        with self._lock:
            self.seconds[f"{operation} {kind}"].append(seconds)

    def slowest(self, most: int) -> Iterator[tuple[str, int, float]]:
        """What took longest: operation and type, how often, and the longest in seconds."""
        ranked = sorted(self.seconds.items(), key=lambda item: -max(item[1]))
        yield from ((what, len(times), max(times)) for what, times in ranked[:most])
