"""Code is compiled once, by any compiler that there is, and changes nothing else in the process."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from services.worker.engine.torch.native import compiler

FUNCTIONS = ("attend_float32", "attend_bfloat16", "linear_float32")


def test_compiled_once(tmp_path: Path) -> None:
    first = compiler.load(tmp_path)
    assert first is not None
    assert all(hasattr(first, name) for name in FUNCTIONS)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 1
    assert compiler.load(tmp_path) is not None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["/nowhere/cc", "false"])
def test_none_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("CC", name)
    assert compiler.load(tmp_path) is None


def test_none_without_a_folder() -> None:
    assert compiler.load(None) is None


def test_a_compiler_without_openmp_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = tmp_path / "plain-cc"
    real = shutil.which("cc") or shutil.which("gcc")
    wrapper.write_text(f'#!/bin/sh\ncase " $* " in *" -fopenmp "*) exit 1;; esac\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    loaded = compiler.load(tmp_path / "kept")
    assert loaded is not None
    assert isinstance(loaded, ctypes.CDLL)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_denormal_numbers_stay(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from services.worker.engine.torch.native import compiler\n"
        "assert compiler.load(Path(sys.argv[1])); assert sys.float_info.min / 2 > 0"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120, env=os.environ | {"PYTHONPATH": "."}
    )
