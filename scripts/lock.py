"""Locks the packages anew after a change of pyproject.toml: `python -m scripts.lock`, or `make lock`.

One file for the checkout and one for each role's image, of the same versions. What an image does without, although a
package asks for it, is named here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from infra.paths import cache_dir
from scripts.bootstrap import ROOT, ensure_uv

NEVER = "sys_platform == 'never'"
COMPILE = ("pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-annotate", "--no-header")


@dataclass(frozen=True)
class Lock:
    """A file in requirements/: which extra of the project it holds, and what replaces or drops a package's own wish."""

    name: str
    extra: str | None = None
    without: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()

    @property
    def overrides(self) -> str:
        """As `uv pip compile --override` reads them."""
        return "\n".join([*(f"{package} ; {NEVER}" for package in self.without), *self.instead, ""])


DEV = Lock("dev", "dev")
ROLES = (
    # The hub's client is for fetching a tokenizer, which comes to the gateway in a folder.
    Lock("gateway", "gateway", without=("huggingface-hub",)),
    Lock("scheduler"),
    Lock("kv"),
    # The torch engine computes on the CPU: without NVIDIA's libraries (2.7 GB) and Triton (0.7 GB). See decision 0009.
    Lock(
        "worker",
        "torch",
        without=(
            "cuda-bindings",
            "nvidia-cudnn-cu13",
            "nvidia-cusparselt-cu13",
            "nvidia-nccl-cu13",
            "nvidia-nvshmem-cu13",
            "triton",
        ),
        instead=("cuda-toolkit[cudart]==13.0.3 ; platform_system == 'Linux'",),
    ),
)


def reachable(lock: str) -> str:
    """A lock without the packages that no platform installs."""
    kept: list[str] = []
    keep = True
    for line in lock.splitlines():
        if not line[:1].isspace():
            keep = not line.rstrip("\\ ").endswith(NEVER)
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"


def compile_lock(uv: Path, cache: Path, lock: Lock) -> None:
    """Write requirements/NAME.txt; a role's versions are those of the checkout. Raises CalledProcessError."""
    target = ROOT / "requirements" / f"{lock.name}.txt"
    command = [str(uv), *COMPILE, "pyproject.toml", "--output-file", str(target)]
    if lock.extra is not None:
        command += ["--extra", lock.extra]
    if lock is not DEV:
        command += ["--constraint", str(target.with_name(f"{DEV.name}.txt"))]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
        if lock.overrides.strip():
            overrides.write(lock.overrides)
            overrides.flush()
            command += ["--override", overrides.name]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "UV_CACHE_DIR": str(cache / "uv")}, check=True)
    if lock is not DEV:
        target.write_text(reachable(target.read_text()))


def main() -> int:
    cache = cache_dir(os.environ)
    uv = ensure_uv(cache)
    for lock in (DEV, *ROLES):
        try:
            compile_lock(uv, cache, lock)
        except subprocess.CalledProcessError as error:
            return int(error.returncode)
        print(f"requirements/{lock.name}.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
