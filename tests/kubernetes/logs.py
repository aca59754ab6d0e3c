"""The logs of a stack's pods while a block runs, also of those that end meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.stack import ClusterStack
from tests.toolchain.kubernetes.waiting import NodeError

POLL_SECONDS = 1.0
LAST_SECONDS = 2.0  # until what was written at the end has come


class Logs:
    """Complete once the block is left."""

    def __init__(self) -> None:
        self.files: list[Path] = []

    def events(self, name: str) -> list[dict[str, Any]]:
        """All lines of one event, pod by pod."""
        lines = (line for file in self.files for line in file.read_text().splitlines() if line.startswith("{"))
        return [event for event in map(json.loads, lines) if event["event"] == name]


@contextmanager
def following(stack: ClusterStack, folder: Path) -> Iterator[Logs]:
    """Read along, into files of `folder`: each container has a file of its own, from its first line on."""
    logs, over = Logs(), threading.Event()
    with ExitStack() as readers:

        def watch() -> None:
            while not over.is_set():
                for name, restarts in _running(stack):
                    file = folder / f"{name}.{restarts}.log"
                    if file not in logs.files:
                        logs.files.append(file)
                        readers.enter_context(_reading(stack, name, file))
                over.wait(POLL_SECONDS)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield logs
        finally:
            over.set()
            watcher.join()
            time.sleep(LAST_SECONDS)


def _running(stack: ClusterStack) -> Iterator[tuple[str, int]]:
    try:
        pods = stack.pods(ending=True)
    except NodeError:  # a moment's trouble: the next round sees what this one missed
        return
    for name, pod in pods.items():
        for status in pod["status"].get("containerStatuses", []):
            if "running" in status["state"]:
                yield name, status["restartCount"]


@contextmanager
def _reading(stack: ClusterStack, pod: str, file: Path) -> Iterator[None]:
    with file.open("wb") as out, stack.following_log(pod, out) as reader:
        try:
            yield
        finally:
            reader.terminate()
