"""Where things lie: the project, the cache, and what belongs to one stack. Standard library only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# A Unix socket's address holds 108 bytes, the closing zero included (unix(7)).
SOCKET_PATH_BYTES = 107
# The folder whose code runs: the project's own, or a release's in it.
CODE = Path(__file__).resolve().parent.parent


class PathError(Exception):
    """A path that something needs does not exist or cannot be used; the message says what to do."""


def cache_dir(environ: Mapping[str, str]) -> Path:
    """The cache: DIPHASE_CACHE, else $XDG_CACHE_HOME/diphase, else ~/.cache/diphase."""
    if environ.get("DIPHASE_CACHE"):
        return Path(environ["DIPHASE_CACHE"]).expanduser().absolute()
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "diphase"


def project_dir(environ: Mapping[str, str], start: Path) -> Path:
    """The folder with Pulumi.yaml: DIPHASE_PROJECT, else `start` or its nearest parent that has one.

    Raises PathError where there is none.
    """
    if environ.get("DIPHASE_PROJECT"):
        project = Path(environ["DIPHASE_PROJECT"]).expanduser().absolute()
        if (project / "Pulumi.yaml").is_file():
            return project
        raise PathError(f"DIPHASE_PROJECT is {project}, but there is no Pulumi.yaml in it")
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise PathError(f"no Pulumi.yaml in {start} or above it: run this in the checkout, or set DIPHASE_PROJECT to it")


def cluster_file(stack: str) -> Path:
    """The kubeconfig of the cluster that a stack makes, below the project."""
    return Path(".diphase") / stack / "kubeconfig"


class StackPaths(NamedTuple):
    """The files of one local stack: `data` in the checkout, `run` (sockets) in the cache because its path is short."""

    data: Path
    run: Path

    @classmethod
    def of(cls, project: Path, stack: str, cache: Path) -> StackPaths:
        """The paths of `stack`; raises PathError where a socket's path would be too long for the kernel."""
        paths = cls(project / ".diphase" / stack, cache / "run" / f"{_digest(project)}-{stack}")
        longest = len(os.fsencode(paths.socket("decode-worker-000")))
        if longest > SOCKET_PATH_BYTES:
            raise PathError(
                f"sockets in {paths.run} would have paths of {longest} bytes; the kernel allows {SOCKET_PATH_BYTES}. "
                "Set DIPHASE_CACHE to a shorter path, or give the stack a shorter name"
            )
        return paths

    @staticmethod
    def runs(project: Path, cache: Path) -> list[Path]:
        """The `run` folders of all of a project's stacks that are up here."""
        return sorted((cache / "run").glob(f"{_digest(project)}-*"))

    @property
    def native(self) -> Path:
        """Code compiled for this machine, shared by all stacks of a cache."""
        return self.run.parents[1] / "native"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def api_key(self) -> Path:
        return self.data / "api_key"

    @property
    def api_keys(self) -> Path:
        return self.data / "api_keys.json"

    def log(self, instance: str) -> Path:
        return self.logs / f"{instance}.log"

    def socket(self, instance: str) -> Path:
        return self.run / f"{instance}.sock"


def _digest(project: Path) -> str:
    return hashlib.sha256(os.fsencode(project)).hexdigest()[:10]
