"""Loads the C sources beside this file as a library: the one that an image carries, or compiled for this CPU, once."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
from pathlib import Path

from services.common import logs
from services.worker.engine.torch.native import build

_log = logs.get()


def load(folder: Path | None) -> ctypes.CDLL | None:
    """The library, kept in `folder`; None, with a line in the log, where it can't be had. None for no folder."""
    if folder is None:
        return None
    try:
        return ctypes.CDLL(str(build.built() or _compiled(folder)))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        _log.warning("native_code_unavailable", reason=detail.strip()[-500:], consequence="slower decode")
        return None


def _compiled(folder: Path) -> Path:
    """The library for these sources, this compiler and CPU; compiles it where it is missing (about two seconds)."""
    compiler = build.find_compiler()
    library = folder / f"native-{_key(compiler)}.so"
    if not library.exists():
        build.make(compiler, library)
    return library


@functools.cache
def _key(compiler: str) -> str:
    """What the compiled code depends on, as sixteen hexadecimal digits."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    sources = [source.read_text() for source in build.SOURCES]
    key = "\0".join([*sources, *build.FLAGS, build.NATIVE, build.OPENMP, version, build.cpu()])
    return hashlib.sha256(key.encode()).hexdigest()[:16]
