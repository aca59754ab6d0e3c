"""What an operation of the engine is doing, for people: a line for each resource that changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from pulumi.automation import EngineEvent, OpType
from rich.console import Console
from rich.markup import escape

SHOWN = {
    OpType.CREATE: ("+", "create"),
    OpType.CREATE_REPLACEMENT: ("+", "create"),
    OpType.UPDATE: ("~", "update"),
    OpType.DELETE: ("-", "delete"),
    OpType.DELETE_REPLACED: ("-", "delete"),
}
COLOURS = {"+": "green", "~": "yellow", "-": "red"}


class Step(NamedTuple):
    """What is done, or is to be done, with one resource."""

    op: str
    urn: str
    type: str


class Progress:
    """Collects an operation's events; on a terminal what is under way is shown live, elsewhere there are only lines.

    `begun` is called in a thread of its own at the first event: then the operation holds the stack.
    """

    def __init__(self, title: str, *, planned: bool = False, begun: Callable[[], None] = lambda: None) -> None:
        self._planned = planned
        self.errors: list[str] = []
        self.changes: dict[str, int] = {}
        self.steps: list[Step] = []
        self._beginning = threading.Thread(target=begun)
        self._title = title
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status(title) if self._console.is_terminal else None
        self._running: dict[str, float] = {}

    def __enter__(self) -> Progress:
        self._began = time.monotonic()
        if self._status:
            self._status.start()
        else:
            self.say(self._title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._beginning.ident is not None:
            self._beginning.join()
        if self._status:
            self._status.stop()
        if kind is None:
            self.say(f"{self._summary()} in {time.monotonic() - self._began:.1f} s")

    def say(self, text: str) -> None:
        """A line of its own."""
        self._console.print(escape(text), soft_wrap=True)

    def on_event(self, event: EngineEvent) -> None:
        """Take an event of the engine."""
        if self._beginning.ident is None:
            self._beginning.start()
        if event.diagnostic_event and event.diagnostic_event.severity == "error":
            self.errors.append(event.diagnostic_event.message)
        elif event.resource_pre_event:
            metadata = event.resource_pre_event.metadata
            if metadata.op != OpType.SAME:
                self.steps.append(Step(OpType(metadata.op).value, metadata.urn, metadata.type))
            if metadata.op in SHOWN and not metadata.type.startswith("pulumi:"):
                self._running[_name(metadata.urn)] = time.monotonic()
        elif event.res_outputs_event:
            metadata = event.res_outputs_event.metadata
            self._ended(_name(metadata.urn), metadata.op)
        elif event.res_op_failed_event:
            name = _name(event.res_op_failed_event.metadata.urn)
            if self._running.pop(name, None) is not None:
                self.say(f"  ! {name} failed")
        elif event.summary_event:
            self.changes = {str(OpType(kind).value): n for kind, n in event.summary_event.resource_changes.items()}
        self._refresh()

    def _ended(self, name: str, op: OpType) -> None:
        began = self._running.pop(name, None)
        if began is None:
            return
        sign, verb = SHOWN[op]
        seconds = time.monotonic() - began
        what = f"to {verb}" if self._planned else f"{verb}d [dim]({seconds:.1f} s)[/]"
        self._console.print(f"  [{COLOURS[sign]}]{sign}[/] {escape(name)} {what}", soft_wrap=True)

    def _refresh(self) -> None:
        if self._status:
            names = ", ".join(sorted(self._running))
            self._status.update(escape(f"{self._title}: {names}" if names else self._title))

    def _summary(self) -> str:
        kinds = sorted((kind, n) for kind, n in self.changes.items() if kind != OpType.SAME and n)
        counts = [f"{n} to {kind}" if self._planned else f"{n} {kind.rstrip('e')}ed" for kind, n in kinds]
        return f"{self._title}: {', '.join(counts) if counts else 'no changes'}"


def _name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]
