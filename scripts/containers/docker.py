"""The docker command: what it is asked, and what it says when it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache

from scripts.faults import OperationFailed
from scripts.steps import SetUpError, run

QUESTION_SECONDS = 60


@cache
def program() -> str:
    """The command: DIPHASE_DOCKER, else the `docker` on PATH. Raises OperationFailed where there is none."""
    named = os.environ.get("DIPHASE_DOCKER", "docker")
    found = shutil.which(named)
    if found is None:
        raise OperationFailed(
            f"{named} is not on PATH: install Docker Engine with its buildx plugin, or set DIPHASE_DOCKER to another"
        )
    return found


def ask(*arguments: str) -> str | None:
    """What docker prints; None where it says that there is no such thing. Raises OperationFailed otherwise."""
    try:
        done = subprocess.run(
            [program(), *arguments], capture_output=True, text=True, check=False, timeout=QUESTION_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise OperationFailed(
            f"docker {arguments[0]} gave no answer in {QUESTION_SECONDS} s: is its daemon well?"
        ) from None
    if done.returncode == 0:
        return done.stdout.strip()
    said = done.stderr.strip()
    if "no such image" in said.lower():
        return None
    raise OperationFailed(f"docker {arguments[0]}: {said}")


def do(arguments: Sequence[str], on_line: Callable[[str], None] = lambda line: None) -> None:
    """Run docker to its end; raises OperationFailed with the last lines that it said."""
    try:
        # Secrets and targets that nobody needs to build are BuildKit's.
        run([program(), *arguments], {**os.environ, "DOCKER_BUILDKIT": "1"}, on_line=on_line)
    except SetUpError as error:
        raise OperationFailed(str(error)) from None


def image_id(reference: str) -> str | None:
    """The id of an image that docker holds; None where it does not."""
    return ask("image", "inspect", "--format", "{{.Id}}", reference)
