"""Compiles the C sources beside this file for this CPU, once, and loads them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from services.common import logs

SOURCES = tuple(Path(__file__).with_name(name) for name in ("attention.c", "linear.c"))
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC")
OPENMP = "-fopenmp"
COMPILE_SECONDS = 60.0
_log = logs.get()


def load(folder: Path | None) -> ctypes.CDLL | None:
    """The library, kept in `folder`; None, with a line in the log, where it can't be had. None for no folder."""
    if folder is None:
        return None
    try:
        return ctypes.CDLL(str(_compiled(folder)))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        _log.warning("native_code_unavailable", reason=detail.strip()[-500:], consequence="slower decode")
        return None


def _compiled(folder: Path) -> Path:
    """The library for these sources, this compiler and CPU; compiles it where it is missing (about two seconds)."""
    compiler = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise FileNotFoundError("there is no C compiler: install gcc or clang")
    library = folder / f"native-{_key(compiler)}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="compile-") as temporary:
            try:
                made = _compile(compiler, Path(temporary), [OPENMP])
            except subprocess.CalledProcessError:  # a compiler without OpenMP: what it makes computes on one thread
                made = _compile(compiler, Path(temporary), [])
            made.replace(library)  # at once: several workers may compile at the same time
    return library


def _compile(compiler: str, folder: Path, openmp: list[str]) -> Path:
    # Linked apart: with -ffast-math some compilers link code that changes how all of the process computes.
    objects = [folder / source.with_suffix(".o").name for source in SOURCES]
    library = folder / "native.so"
    for command in (
        [*FLAGS, *openmp, "-c", *map(str, SOURCES)],
        [*openmp, "-shared", "-o", str(library), *map(str, objects), "-lm"],
    ):
        subprocess.run(
            [compiler, *command], cwd=folder, capture_output=True, text=True, check=True, timeout=COMPILE_SECONDS
        )
    return library


@functools.cache
def _key(compiler: str) -> str:
    """What the compiled code depends on, as sixteen hexadecimal digits."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    key = "\0".join([*(source.read_text() for source in SOURCES), *FLAGS, OPENMP, version, _cpu()])
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _cpu() -> str:
    """What -march=native means here."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"
