"""Stand-ins for libraries that are absent: the loader finds them, and a call of one is an error and no crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "images" / "absent.py"
CODE = """
int cublasCreate(void);
int ncclInit(void);
int answer(int which) { return which == 0 ? cublasCreate() : which == 1 ? ncclInit() : 42; }
"""


def compiled(library: Path, source: str, *options: str) -> Path:
    library.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-x",
        "none",
        "-o",
        str(library),
        f"-Wl,-soname,{library.name}",
        *options,
    ]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return library


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """Like torch/lib: a library that was linked against two that are then taken away, one with versions."""
    folder = tmp_path / "site-packages" / "torch" / "lib"
    versions = tmp_path / "versions"
    versions.write_text("libcublas.so.13 { global: *; };\n")
    with_version = f"-Wl,--version-script={versions}"
    linked = [
        compiled(tmp_path / "linked" / "libcublas.so.13", "int cublasCreate(void) { return 0; }", with_version),
        compiled(tmp_path / "linked" / "libnccl.so.2", "int ncclInit(void) { return 0; }"),
    ]
    compiled(folder / "libtorch.so", CODE, "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", *map(str, linked))
    return folder


def answer(folder: Path, which: int) -> subprocess.CompletedProcess[str]:
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer(int(sys.argv[2])))"
    command = [sys.executable, "-c", code, str(folder / "libtorch.so"), str(which)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def stand_in(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROGRAM), str(folder)], capture_output=True, text=True, timeout=300)


def test_what_could_not_be_loaded_can_be(torch: Path) -> None:
    assert "libcublas.so.13" in answer(torch, 2).stderr
    made = stand_in(torch)
    assert made.returncode == 0, made.stderr
    assert sorted(path.name for path in torch.iterdir()) == ["libcublas.so.13", "libnccl.so.2", "libtorch.so"]
    assert answer(torch, 2).stdout == "42\n"
    assert [answer(torch, which).stdout for which in (0, 1)] == ["1\n", "1\n"], "each call answers an error"


def test_what_is_there_stays(torch: Path) -> None:
    real = compiled(torch.parents[1] / "nvidia" / "cu13" / "lib" / "libnccl.so.2", "int ncclInit(void) { return 0; }")
    stand_in(torch)
    assert real.exists()
    assert not (torch / "libnccl.so.2").exists()
    assert (torch / "libcublas.so.13").exists()


def test_a_library_of_somebody_else_is_named(torch: Path, tmp_path: Path) -> None:
    other = compiled(tmp_path / "linked" / "libelse.so.1", "int elsewhere(void) { return 0; }")
    compiled(torch / "libmore.so", "int more(void) { return 0; }", "-Wl,--no-as-needed", str(other))
    done = stand_in(torch)
    assert done.returncode == 1
    assert "libelse.so.1" in done.stderr
