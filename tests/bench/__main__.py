"""`make bench`: Diphase beside its peers, in one run, as ratios. Nothing here is a test; figures move between machines.

Usage: python -m tests.bench [--only NAME …] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

from tests.bench import engine, handoff, service, stack

PARTS: dict[str, Callable[[], dict[str, object]]] = {
    "engine": engine.measure,
    "service": service.measure,
    "handoff": handoff.measure,
    "stack": stack.measure,
}


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return (
        f"{os.cpu_count()} CPUs, {name}, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def main() -> None:
    """Run the parts and print them as they come."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    args = parser.parse_args()
    figures: dict[str, object] = {"machine": _machine()}
    print(figures["machine"], flush=True)
    for name in args.only:
        print(f"\n== {name}", flush=True)
        figures[name] = PARTS[name]()
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
