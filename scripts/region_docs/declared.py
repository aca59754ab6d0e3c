"""What a program declares, without an engine and without AWS: what would be computed is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pulumi.runtime import mocks
from pulumi.runtime.settings import SETTINGS
from pulumi.runtime.stack import run_pulumi_func


@dataclass(frozen=True)
class Declared:
    """One resource: its type, its URN, its parent's, and those of the resources that it waits for."""

    type: str
    urn: str
    parent: str
    waits: tuple[str, ...]


class _Nothing(mocks.Mocks):
    """Computes nothing."""

    def call(self, args: mocks.MockCallArgs) -> Any:
        return {}

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        return (f"{args.name}-id" if args.custom else None), dict(args.inputs)


class _Monitor(mocks.MockMonitor):
    """Keeps what is registered."""

    def __init__(self) -> None:
        super().__init__(_Nothing())
        self.found: list[Declared] = []

    def Invoke(self, request: Any) -> Any:
        with loop_of_thread():
            return super().Invoke(request)  # type: ignore[no-untyped-call]

    def RegisterResource(self, request: Any) -> Any:
        with loop_of_thread():
            answer = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.type != "pulumi:pulumi:Stack":
            self.found.append(Declared(request.type, answer.urn, request.parent, tuple(request.dependencies)))
        return answer


@contextmanager
def loop_of_thread() -> Iterator[None]:
    """The mock monitor opens an event loop in each thread that asks it, and leaves it open."""
    yield
    try:
        loop = asyncio.get_event_loop()
    except RuntimeError:  # it had no need of one
        return
    if not loop.is_running():
        loop.close()
        asyncio.set_event_loop(None)


def declared(program: Callable[[], object], stack: str) -> list[Declared]:
    """The resources of a program, in an order of need."""
    monitor = _Monitor()

    async def run() -> None:
        mocks.set_mocks(_Nothing(), project="diphase", stack=stack, preview=True, monitor=monitor)
        SETTINGS.rpc_manager.clear()
        SETTINGS.outputs.clear()
        await run_pulumi_func(lambda: (program(), None)[1])

    # In a thread of its own: Pulumi keeps its event loop and its settings by thread and context.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run()).result()
    return monitor.found
