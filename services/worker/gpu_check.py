"""Compares a node's GPUs with what the stack expects: `python -m services.worker.gpu_check --count 8 …`.

It runs before the worker. What differs ends it with status 1 and one sentence, rather than with a worker that is slow
or wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

QUERY = ("name", "driver_version", "ecc.mode.current")
SECONDS = 60.0


class GpuError(Exception):
    """The GPUs are not what is expected, or cannot be seen; the message is one sentence."""


@dataclass(frozen=True)
class Gpu:
    """One device as nvidia-smi reports it; `ecc` is None where the device has none."""

    product: str
    driver: str
    ecc: bool | None


@dataclass(frozen=True)
class Expected:
    """What there must be; None is not compared. `driver` is the oldest that will do."""

    count: int
    product: str | None = None
    driver: str | None = None
    ecc: bool | None = None


def found() -> list[Gpu]:
    """The GPUs that this container sees; raises GpuError where that cannot be known."""
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        raise GpuError(
            "there is no nvidia-smi in this container: the node lacks the NVIDIA container toolkit, or the pod its "
            "runtime class (kubernetes.*.runtimeClass)"
        ) from None
    except subprocess.TimeoutExpired:
        raise GpuError(f"nvidia-smi has not answered for {SECONDS:.0f} s: a GPU or its driver hangs") from None
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())
        raise GpuError(f"nvidia-smi ended with status {done.returncode}: {said}")
    return [_read(line) for line in done.stdout.splitlines() if line.strip()]


def _read(line: str) -> Gpu:
    fields = [field.strip() for field in line.rsplit(",", len(QUERY) - 1)]
    if len(fields) != len(QUERY):
        raise GpuError(f"nvidia-smi said {line!r}, where name, driver and ECC mode were asked for")
    return Gpu(fields[0], fields[1], {"Enabled": True, "Disabled": False}.get(fields[2]))


def fault(gpus: Sequence[Gpu], expected: Expected) -> str | None:
    """What differs first, or None."""
    if len(gpus) != expected.count:
        return f"{len(gpus)} GPUs are visible, {expected.count} are expected{_named(gpus)}"
    for gpu in gpus:
        if expected.product is not None and gpu.product.lower() != expected.product.lower():
            return f"a GPU is a {gpu.product}, {expected.product} is expected"
        if expected.driver is not None and _version(gpu.driver) < _version(expected.driver):
            return f"the driver is {gpu.driver}, {expected.driver} or newer is expected"
        if expected.ecc is not None and gpu.ecc is not expected.ecc:
            state = {True: "on", False: "off", None: "not to be had"}
            return f"ECC of a {gpu.product} is {state[gpu.ecc]}, {state[expected.ecc]} is expected"
    return None


def _named(gpus: Sequence[Gpu]) -> str:
    names = ", ".join(f"{number} {name}" for name, number in Counter(gpu.product for gpu in gpus).items())
    return f" ({names})" if names else ""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m services.worker.gpu_check", description=__doc__)
    parser.add_argument("--count", type=int, required=True, help="GPUs")
    parser.add_argument("--product", help="their model, such as 'NVIDIA H100 80GB HBM3'")
    parser.add_argument("--driver", help="oldest driver that will do, such as 570.86")
    parser.add_argument("--ecc", choices=["on", "off"], help="ECC mode")
    args = parser.parse_args()
    expected = Expected(args.count, args.product, args.driver, None if args.ecc is None else args.ecc == "on")
    try:
        gpus = found()
        why = fault(gpus, expected)
        if why is not None:
            raise GpuError(why)
    except GpuError as error:
        print(f"GPU check: {error}", file=sys.stderr)
        return 1
    print(f"GPU check: {len(gpus)} GPUs as expected{_named(gpus)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
