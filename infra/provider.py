"""What our dynamic providers have in common: they live in a process of Pulumi's, and end with its engine."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from pulumi.dynamic import ConfigureRequest, ResourceProvider

CHECK_SECONDS = 1.0


class StackProvider(ResourceProvider):
    """A provider whose code is found by its module's name and holds no secret, so that its pickle never changes."""

    serialize_as_secret_always = False

    def configure(self, req: ConfigureRequest) -> None:
        """Called once in the provider's process. That does not notice by itself when the engine is killed."""
        threading.Thread(target=_end_with_engine, daemon=True).start()


def _end_with_engine() -> None:
    # The engine starts a shell script, which starts this process: the script's parent changes when the engine dies.
    script = os.getppid()
    engine = _parent(script)
    while engine is not None:
        time.sleep(CHECK_SECONDS)
        if _parent(script) != engine:
            os._exit(1)


def _parent(pid: int) -> int | None:
    """The parent of a process; None where there is no /proc or no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything.
    return int(stat.rpartition(")")[2].split()[1])
