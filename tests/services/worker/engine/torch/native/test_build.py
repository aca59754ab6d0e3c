"""What an image carries instead of a compiler: a library for each level of instructions, the best one chosen."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from services.worker.engine.torch.native import build

FUNCTIONS = ("attend_float32", "attend_bfloat16", "linear_float32")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `python build.py FOLDER` leaves it, by an interpreter without any package."""
    folder = tmp_path_factory.mktemp("native") / "built"
    subprocess.run([sys.executable, "-I", "-S", build.__file__, str(folder)], check=True, timeout=300)
    return folder


def test_one_for_each_level(libraries: Path) -> None:
    assert {path.name for path in libraries.iterdir()} == {f"{level.name}.so" for level in build.levels()}


def test_the_best_for_a_cpu(libraries: Path) -> None:
    for level in build.levels():
        assert build.built(libraries, " ".join(level.needs)) == libraries / f"{level.name}.so"


def test_none_for_a_cpu_that_lacks_the_instructions(libraries: Path) -> None:
    needed = build.levels()[-1].needs
    for flag in needed:
        assert build.built(libraries, " ".join(needed - {flag})) is None


def test_none_where_none_was_built(tmp_path: Path) -> None:
    assert build.built(tmp_path) is None


def test_this_cpu_can_run_it(libraries: Path) -> None:
    chosen = build.built(libraries)
    if chosen is None:
        assert build.levels() == build.X86, "only an x86 CPU from before 2013 has none"
        return
    assert all(hasattr(ctypes.CDLL(str(chosen)), name) for name in FUNCTIONS)
