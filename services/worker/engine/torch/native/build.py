"""How the C sources beside this file become a library: for the CPU at hand or, in an image, for CPUs that may come.

`python build.py FOLDER` makes a library for each level of instructions of this kind of machine, as an image without a
compiler carries them in `built` beside this file. Standard library only.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCES = tuple(Path(__file__).with_name(name) for name in ("attention.c", "linear.c"))
FLAGS = ("-O3", "-ffast-math", "-fPIC")
NATIVE = "-march=native"
OPENMP = "-fopenmp"
COMPILE_SECONDS = 60.0
BUILT = Path(__file__).with_name("built")


class Level(NamedTuple):
    """Instructions that a library may use, and the flags of /proc/cpuinfo by which a CPU says that it has them."""

    name: str
    march: tuple[str, ...]
    needs: frozenset[str]


AVX2 = frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"])
AVX512 = AVX2 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
# Best first; of the x86-64 psABI. Elsewhere what the compiler takes for granted.
X86 = (Level("x86-64-v4", ("-march=x86-64-v4",), AVX512), Level("x86-64-v3", ("-march=x86-64-v3",), AVX2))
ANY = (Level("any", (), frozenset()),)


def levels() -> tuple[Level, ...]:
    """Those of this kind of machine."""
    return X86 if platform.machine() == "x86_64" else ANY


def built(folder: Path = BUILT, flags: str | None = None) -> Path | None:
    """The best library in `folder` for this CPU, or for one with such flags; None where there is none."""
    has = set((cpu() if flags is None else flags).split())
    candidates = (folder / f"{level.name}.so" for level in levels() if level.needs <= has)
    return next((library for library in candidates if library.exists()), None)


def find_compiler() -> str:
    """CC, or what there is; raises FileNotFoundError."""
    found = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if found is None:
        raise FileNotFoundError("there is no C compiler: install gcc or clang")
    return found


def make(compiler: str, library: Path, march: tuple[str, ...] = (NATIVE,)) -> None:
    """Compile; `library` is there at once and whole. Raises OSError or SubprocessError."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="compile-") as temporary:
        try:
            made = _compile(compiler, Path(temporary), [*march, OPENMP])
        except subprocess.CalledProcessError:  # a compiler without OpenMP: what it makes computes on one thread
            made = _compile(compiler, Path(temporary), [*march])
        made.replace(library)  # several workers may compile at the same time


def cpu() -> str:
    """What this CPU has, which is what -march=native means here."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"


def _compile(compiler: str, folder: Path, options: list[str]) -> Path:
    # Linked apart: with -ffast-math some compilers link code that changes how all of the process computes.
    objects = [folder / source.with_suffix(".o").name for source in SOURCES]
    library = folder / "native.so"
    openmp = [option for option in options if option == OPENMP]
    for command in (
        [*FLAGS, *options, "-c", *map(str, SOURCES)],
        [*openmp, "-shared", "-o", str(library), *map(str, objects), "-lm"],
    ):
        subprocess.run(
            [compiler, *command], cwd=folder, capture_output=True, text=True, check=True, timeout=COMPILE_SECONDS
        )
    return library


def main() -> None:
    for level in levels():
        make(find_compiler(), Path(sys.argv[1]) / f"{level.name}.so", level.march)


if __name__ == "__main__":
    main()
