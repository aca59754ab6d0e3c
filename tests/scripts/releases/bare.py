"""A stack without resources, driven in a process of its own: `python -m tests.scripts.releases.bare OPERATION WORD`.

What its program does is in the word: `fail`, or `hang` until it is killed, once the update has left its mark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pulumi

from scripts.engine import Engine
from scripts.releases.history import load, mark
from scripts.releases.record import Record, compose

ROOT = Path(__file__).resolve().parents[3]
STACK = "test"


def engine(word: str = "") -> Engine:
    """The stack of the project that DIPHASE_PROJECT names."""

    def program(_project: Path) -> None:
        if word == "fail":
            raise RuntimeError("it was to fail")
        if word == "hang":
            while load(engine()).unfinished is None:
                time.sleep(0.05)
            print("hangs", flush=True)
            time.sleep(600)
        pulumi.export("word", word)

    return Engine(STACK, program)


def start(operation: str, word: str = "") -> subprocess.Popen[str]:
    """The process that runs an operation, at the head of its own process group."""
    command = [sys.executable, "-m", "tests.scripts.releases.bare", operation, word]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0)


def run(operation: str, word: str = "") -> bool:
    """Run an operation to its end; whether it succeeded."""
    process = start(operation, word)
    process.communicate(timeout=120)
    return process.returncode == 0


def record(word: str) -> Record:
    """What an update with this word says of itself."""
    return Record(os.environ.get("COMMIT", "c" * 40), ("x",), "1.2", attempt=word)


def main(operation: str, word: str) -> None:
    options = {"message": compose(f"word {word}", record(word)), "begun": mark(engine(), record(word))}
    engine(word).run(operation, operation, **(options if operation == "up" else {}))


if __name__ == "__main__":
    main(*sys.argv[1:])
