"""Runs a release's own `diphase` on the project's stack: the code of a commit is driven by the tools of that commit.

What a release is asked for, and so may never change its meaning: `preview --config-file FILE --json` (steps on standard
output), `up --config-file FILE --message TEXT`, `verify`, each with `--stack`, and DIPHASE_PROJECT in the environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from scripts.releases.folder import MISLEADING, Release

INTERRUPTED = 130
# The first ^C lets the engine end its steps, the second does not, the third ends what is left.
PATIENCE = 3
# ^C, the end of a CI job, and a terminal that goes away.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(release: Release, project: Path, *arguments: str, capture: bool = False) -> tuple[int, str]:
    """The exit status of `diphase ARGUMENTS` and, with `capture`, what it printed; raises Abort after an interrupt."""
    environ = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    environ["DIPHASE_PROJECT"] = str(project)
    with _forwarding() as interrupts, _writing_from_behind():
        # In a process group of its own an interrupt reaches it once, from here, whoever sent it.
        process = subprocess.Popen(
            [release.diphase, *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else None,
            text=True,
            process_group=0,
        )
        with process:
            interrupts.to(process.pid)
            printed, _ = process.communicate()
    if interrupts.heard or process.returncode == INTERRUPTED:
        raise click.Abort
    return process.returncode, printed or ""


class Interrupts:
    """What a person's signals become for a process group."""

    def __init__(self) -> None:
        self.heard = 0
        self._group: int | None = None

    def to(self, group: int) -> None:
        """The group is there now; one that came before is passed on."""
        self._group = group
        if self.heard:
            self._pass_on()

    def take(self, _number: int, _frame: FrameType | None) -> None:
        self.heard += 1
        self._pass_on()

    def _pass_on(self) -> None:
        if self._group is None:
            return
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(self._group, signal.SIGKILL if self.heard >= PATIENCE else signal.SIGINT)


@contextmanager
def _writing_from_behind() -> Iterator[None]:
    """A process that does not own the terminal may write to it even where the terminal says otherwise (stty tostop)."""
    with handling(signal.SIG_IGN, signal.SIGTTOU):
        yield


@contextmanager
def _forwarding() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    with handling(interrupts.take, *ENDING):
        yield interrupts


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object] | signal.Handlers, *numbers: int) -> Iterator[None]:
    """These signals go to `handler`, and afterwards to whom they went before."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
