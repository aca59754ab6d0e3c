"""Sets a checkout up: uv, the locked Python environment in .venv, the Pulumi CLI. Standard library only.

Run by `make up` and `make test` with whatever python3 there is, so its syntax is that of an old one. Nothing is written
outside the checkout and the cache. A call that finds everything in place takes a fraction of a second.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from infra.paths import cache_dir
from scripts import pulumi_cli
from scripts.steps import SetUpError, Step, run

MIN_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def require_python() -> None:
    """Raises SetUpError where this interpreter is too old."""
    wanted = ".".join(map(str, MIN_PYTHON))
    if sys.version_info[:2] < MIN_PYTHON:
        raise SetUpError(
            f"{sys.executable} is Python {platform.python_version()}; {wanted} or newer is needed. "
            "Install one (Debian, Ubuntu: `apt install python3.11 python3.11-venv`; macOS: `brew install "
            "python@3.11`; or pyenv) and run again with `make PYTHON=python3.11 …`"
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise SetUpError(
            f"{sys.executable} lacks the modules venv and ensurepip: `apt install python{version}-venv`"
        ) from None


def fingerprint(*parts: str | bytes | Path) -> str:
    """A hash of texts and of the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def ensure_uv(cache: Path) -> Path:
    """The pinned uv, in an environment of its own in the cache; gives the program's path."""
    lock = ROOT / "requirements" / "uv.txt"
    # The same interpreter has several names; `python3` may be another one tomorrow.
    home = cache / "uv-tool" / fingerprint(lock, sys.version, os.path.realpath(sys.executable))[:16]
    uv = home / "bin" / "uv"
    if not uv.exists():
        with Step(f"uv (installs the Python environment) into {home}"):
            shutil.rmtree(home, ignore_errors=True)
            partial = home.with_name(f"{home.name}.{os.getpid()}")
            run([os.path.realpath(sys.executable), "-m", "venv", str(partial)])
            pip = [str(partial / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
            run([*pip, "--disable-pip-version-check", "--require-hashes", "--no-deps", "-r", str(lock)])
            partial.rename(home)
    return uv


def ensure_environment(uv: Path, cache: Path) -> None:
    """`.venv`, holding exactly what requirements/dev.txt locks, and this project as an editable package."""
    lock = ROOT / "requirements" / "dev.txt"
    stamp = VENV / "diphase-stamp"
    wanted = fingerprint(lock, ROOT / "pyproject.toml", sys.version)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    environ = {**os.environ, "UV_CACHE_DIR": str(cache / "uv"), "VIRTUAL_ENV": str(VENV)}
    packages = sum("==" in line for line in lock.read_text().splitlines())
    with Step(f"{packages} Python packages into .venv (the first time about 5 GB are fetched, most of it torch)"):
        if not (VENV / "bin" / "python").exists() or _version_of(VENV) != platform.python_version():
            run([str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)], environ)
        run([str(uv), "pip", "sync", "--require-hashes", str(lock)], environ, show=True)
        # The build backend is in the lock, so the project's own package needs nothing from outside it.
        editable = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        run([str(uv), "pip", "install", "--quiet", *editable], environ)
        # Pulumi's language host looks for `virtualenv` from the project's folder, its dynamic provider from `main`.
        link = ROOT / "infra" / ".venv"
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.join("..", VENV.name))
        stamp.write_text(wanted)


def _version_of(venv: Path) -> str:
    done = subprocess.run(
        [str(venv / "bin" / "python"), "-c", "import platform; print(platform.python_version())"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def set_up(cache: Path) -> None:
    """Everything, one process at a time; raises SetUpError."""
    require_python()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "set-up.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure_environment(ensure_uv(cache), cache)
        pulumi_cli.ensure(VENV, cache)


def main() -> int:
    try:
        set_up(cache_dir(os.environ))
    except SetUpError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up interrupted; run it again and it goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
