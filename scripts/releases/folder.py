"""Where an earlier release runs from: a git worktree at its commit with an environment of its own.

It lies in `.diphase/releases` of the project. The local target's roles run out of it, so it stays for as long as one
does; for other targets it goes when the rollback ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from infra.paths import StackPaths
from scripts.faults import OperationFailed
from scripts.releases.repository import GitError, Repository
from scripts.steps import SetUpError, Step, run

LOCK_SECONDS = 900.0  # another's set-up may fetch packages
POLL_SECONDS = 0.1
EVERY = "all"  # the lock for making and removing releases; others are each for one that somebody works with
# They would put this checkout's code before the release's.
MISLEADING = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Release:
    """A commit's code, ready to run; `source` is the folder in it that corresponds to the project."""

    commit: str
    source: Path

    @property
    def diphase(self) -> str:
        return str(self.source / ".venv" / "bin" / "diphase")


class Releases:
    """The releases of a project; methods raise OperationFailed."""

    def __init__(self, project: Path, cache: Path) -> None:
        self._project, self._cache = project, cache
        self._folder = project / ".diphase" / "releases"
        self._repository = Repository(project)

    @contextmanager
    def at(self, commit: str) -> Iterator[Release]:
        """The release of a commit, at least for as long as the context is open."""
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = self._folder / commit[:16]
        try:
            with self._lock(folder.name, fcntl.LOCK_SH):
                with self._lock(EVERY, fcntl.LOCK_EX):
                    release = self._prepare(folder, commit)
                yield release
        finally:
            self.prune()

    def prune(self) -> None:
        """Remove releases that no stack runs and nobody works with."""
        if not self._folder.is_dir():
            return
        try:
            with self._lock(EVERY, fcntl.LOCK_EX, wait=False):
                for folder in self._folder.iterdir():
                    if folder.is_dir() and not self._used(folder):
                        self._remove_unless_held(folder)
        except _Busy:
            return  # whoever has it prunes when it is done

    def _prepare(self, folder: Path, commit: str) -> Release:
        try:
            if not self._cleaned(folder, commit):
                with Step(f"commit {commit[:12]} into {folder}"):
                    self._remove(folder)
                    self._repository.add_worktree(folder, commit)
            source = folder / self._repository.prefix()
        except GitError as error:
            raise OperationFailed(f"commit {commit[:12]} cannot be checked out: {error}") from None
        environ = {name: value for name, value in os.environ.items() if name not in MISLEADING}
        try:
            # With the interpreter that this environment was made of: the packages are in the cache for that one.
            run([_interpreter(), "-m", "scripts.bootstrap"], environ, cwd=str(source), show=True)
        except SetUpError as error:
            raise OperationFailed(f"the environment of commit {commit[:12]} cannot be set up: {error}") from None
        return Release(commit, source)

    @staticmethod
    def _cleaned(folder: Path, commit: str) -> bool:
        """Whether the folder is a worktree, which is then exactly at the commit."""
        if not (folder / ".git").is_file():
            return False
        try:
            Repository(folder).git("reset", "--quiet", "--hard", commit)
            Repository(folder).git("clean", "--quiet", "-d", "--force")
        except GitError:
            return False
        return True

    def _used(self, folder: Path) -> bool:
        """Whether a supervisord, or a program of one, runs out of a folder."""
        # Without what comes before: the project's path may have been spelled through a link.
        mark = f"/{folder.parent.parent.name}/{folder.parent.name}/{folder.name}/"
        for run_folder in StackPaths.runs(self._project, self._cache):
            for path in (run_folder / "supervisord.conf", *(run_folder / "programs").glob("*")):
                try:
                    if mark in path.read_text():
                        return True
                except FileNotFoundError:  # that program is being replaced
                    continue
        return False

    def _remove_unless_held(self, folder: Path) -> None:
        try:
            with self._lock(folder.name, fcntl.LOCK_EX, wait=False):
                self._remove(folder)
        except _Busy:
            return

    def _remove(self, folder: Path) -> None:
        # Not known to the repository any more, or never: the folder is to go all the same.
        with suppress(GitError):
            self._repository.remove_worktree(folder)
        shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _lock(self, name: str, how: int, *, wait: bool = True) -> Iterator[None]:
        deadline = time.monotonic() + LOCK_SECONDS
        with open(self._folder / f"{name}.lock", "a") as handle:
            while True:
                try:
                    fcntl.flock(handle, how | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not wait:
                        raise _Busy from None
                    if time.monotonic() > deadline:
                        raise OperationFailed(
                            f"another rollback has held {handle.name} for {LOCK_SECONDS:.0f} s: end it first"
                        ) from None
                time.sleep(POLL_SECONDS)
            yield


class _Busy(Exception):
    """Somebody else holds a lock."""


def _interpreter() -> str:
    base: str = getattr(sys, "_base_executable", sys.executable)
    return os.path.realpath(base)
