"""Waits with a deadline, and the error of a node that did not do what it was asked to."""

from __future__ import annotations

import time
from collections.abc import Callable

INTERVAL_SECONDS = 0.05


class NodeError(Exception):
    """The node did not do what it was asked to; the message says why, as far as its logs do."""


def until(
    check: Callable[[], bool], seconds: float, what: str, failed: Callable[[], str | None] = lambda: None
) -> None:
    """Wait for a check to hold; raises NodeError with what `failed` says, or when the time is over."""
    deadline = time.monotonic() + seconds
    while not check():
        why = failed()
        if why is not None:
            raise NodeError(f"waited for {what}: {why}")
        if time.monotonic() > deadline:
            raise NodeError(f"waited {seconds:.0f} s for {what}")
        time.sleep(INTERVAL_SECONDS)
