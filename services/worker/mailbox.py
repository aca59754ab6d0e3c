"""From the engine's threads to the coroutine that answers a request: one mailbox for each request."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from services.worker.engine.protocol import Engine, Event

SEPARATOR = "#"  # engine ids are "<request id>#<n>": one request may visit a worker twice


def request_id_of(engine_id: str) -> str:
    """The request id, without the visit's number."""
    return engine_id.rpartition(SEPARATOR)[0]


class Mailbox:
    """Events of one visit, in order. `ended` tells that the last one has come."""

    def __init__(self, visit: str) -> None:
        self.visit = visit
        self.ended = False
        self._events: list[Event] = []
        self._wake: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        """Called on the event loop."""
        self._events.append(event)
        self.ended = event.finish_reason is not None or event.error is not None
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def take(self) -> list[Event]:
        """All events that have come; waits for one. The engine ends every request by its deadline, so this returns."""
        while not self._events:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        events, self._events = self._events, []
        return events

    def drop_kept(self, engine: Engine) -> None:
        """Give back blocks in events that nobody took."""
        for event in self._events:
            if event.kept_blocks:
                engine.free(event.kept_blocks)
        self._events = []


class Mailroom:
    """All mailboxes of a worker; `deliver` is the engine's sink."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._open: dict[str, Mailbox] = {}
        self._visits = itertools.count(1)

    def __len__(self) -> int:
        """Requests that are being answered."""
        return len(self._open)

    def deliver(self, events: list[Event]) -> None:
        """Called from the engine's threads, once a step."""
        try:
            self._loop.call_soon_threadsafe(self._distribute, events)
        except RuntimeError:  # the loop is closed: the process ends, and its blocks with it
            return

    def _distribute(self, events: list[Event]) -> None:
        for event in events:
            box = self._open.get(event.request_id)
            if box is not None:
                box.put(event)
            elif event.kept_blocks:
                self._engine.free(event.kept_blocks)  # its client left while the step ran

    @contextmanager
    def visit(self, request_id: str) -> Iterator[Mailbox]:
        """A mailbox for one visit; leaving it before the end aborts the request in the engine."""
        box = Mailbox(f"{request_id}{SEPARATOR}{next(self._visits)}")
        self._open[box.visit] = box
        try:
            yield box
        finally:
            del self._open[box.visit]
            box.drop_kept(self._engine)
            if not box.ended:
                self._engine.abort(box.visit)
