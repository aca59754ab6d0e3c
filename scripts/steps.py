"""Steps of the set-up: what is being done, for how long, and what a program said when it failed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

BEAT_SECONDS = 15.0
TAIL_LINES = 20


class SetUpError(Exception):
    """The set-up cannot go on; the message says what is missing and what to install."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Step:
    """Announces a step, reports that it still runs every 15 seconds, and how long it took."""

    def __init__(self, what: str, note: Callable[[], str] | None = None) -> None:
        self._what = what
        self._note = note or (lambda: "")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Step:
        self._began = time.monotonic()
        say(f"==> {self._what}")
        self._thread.start()
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        self._over.set()
        self._thread.join()
        say(f"    {'done' if kind is None else 'failed'} after {time.monotonic() - self._began:.0f} s")

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            say(f"    … {time.monotonic() - self._began:.0f} s {self._note()}".rstrip())


def run(
    command: Sequence[str],
    environ: Mapping[str, str] | None = None,
    *,
    cwd: str | None = None,
    show: bool = False,
    on_line: Callable[[str], None] = lambda line: None,
) -> None:
    """Run a program to its end; its output is shown, or kept for the message of the SetUpError if it fails."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with subprocess.Popen(
        command,
        env=dict(os.environ if environ is None else environ),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=None if show else subprocess.PIPE,
        stderr=None if show else subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                on_line(line.rstrip())
            status = process.wait()
        except BaseException:
            process.terminate()
            raise
    if status != 0:
        said = "\n".join(f"  {line}" for line in tail)
        raise SetUpError(f"`{' '.join(command)}` ended with status {status}" + (f":\n{said}" if said else ""))
