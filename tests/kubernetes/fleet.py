"""How many pods of each role there are, second by second, while something else happens."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.kubernetes.stack import ClusterStack

EVERY_SECONDS = 1.5


@dataclass
class Fleet:
    """Observations of a stack's pods; those that end are still counted, for they still have their machine."""

    stack: ClusterStack
    seen: list[tuple[float, Counter[str]]] = field(default_factory=list)

    @contextmanager
    def watched(self) -> Iterator[Fleet]:
        """Observe in a thread until the block ends."""
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                self.look()
                over.wait(EVERY_SECONDS)

        thread = threading.Thread(target=watch, name="fleet")
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join(60)

    def look(self) -> Counter[str]:
        """Observe once."""
        pods = self.stack.pods(ending=True).values()
        found = Counter(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods)
        self.seen.append((time.monotonic(), found))
        return found

    def changes(self, role: str) -> list[tuple[float, int]]:
        """The numbers of a role's pods one after the other, each with the second in which it was seen first."""
        begin, found = self.seen[0][0], list[tuple[float, int]]()
        for at, pods in self.seen:
            if not found or found[-1][1] != pods[role]:
                found.append((at - begin, pods[role]))
        return found

    def numbers(self, role: str) -> list[int]:
        """The numbers alone."""
        return [number for _, number in self.changes(role)]

    def pod_seconds(self, roles: Sequence[str]) -> float:
        """The sum of the lives of these roles' pods, as far as they were observed."""
        pairs = zip(self.seen, self.seen[1:], strict=False)
        return sum((after - at) * sum(found[role] for role in roles) for (at, found), (after, _) in pairs)

    @property
    def seconds(self) -> float:
        """From the first observation to the last."""
        return self.seen[-1][0] - self.seen[0][0]


def turns(numbers: Sequence[int]) -> int:
    """How often it went the other way: 1, 2, 3, 2 turns once."""
    steps = [after > before for before, after in itertools.pairwise(numbers)]
    return sum(one != other for one, other in itertools.pairwise(steps))
