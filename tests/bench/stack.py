"""Seconds from `diphase up` (everything cached) to the first token of a stream, and of a preview without changes."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.e2e.stack import MODEL, Stack

RUNS = 3


def _first_token(stack: Stack) -> float:
    started = time.perf_counter()
    said = dict(line.split(maxsplit=1) for line in stack.run("up").stdout.splitlines())
    stack.api_key = (stack.project / said["key"]).read_text().strip()
    stream = stack.client().completions.create(model=MODEL, prompt="Hello", max_tokens=2, stream=True)
    next(iter(stream))
    took = time.perf_counter() - started
    stream.close()
    return took


def measure() -> dict[str, object]:
    """`up` on a fresh project folder each time, then previews of the running stack."""
    ups, previews = [], []
    for _ in range(RUNS):
        project = Path(tempfile.mkdtemp(prefix="diphase-bench-"))
        stack = Stack(project)
        try:
            ups.append(_first_token(stack))
            for _ in range(2):
                started = time.perf_counter()
                stack.run("preview", "--expect-no-changes")
                previews.append(time.perf_counter() - started)
        finally:
            stack.down()
            shutil.rmtree(project, ignore_errors=True)
    print(f"up to first token, all cached: {median(ups):.1f} s (of {RUNS}: {', '.join(f'{x:.1f}' for x in ups)})")
    print(f"preview without changes: {median(previews):.2f} s ({', '.join(f'{x:.2f}' for x in previews)})")
    return {"up_to_first_token_s": ups, "noop_preview_s": previews}
