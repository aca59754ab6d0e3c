"""The git repository around a checkout: what is checked out, whether a commit is here, worktrees at other commits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

GIT_SECONDS = 120.0
# A hook that calls us has these set for its own repository (git rev-parse --local-env-vars).
LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


class GitError(Exception):
    """git refused, or is not there; the message is what it said."""


class Repository:
    """The repository that `folder` is in; methods raise GitError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def git(self, *arguments: str) -> str:
        """The output of `git ARGUMENTS`, without the line end."""
        environ = {name: value for name, value in os.environ.items() if name not in LOCAL}
        # Hooks of the repository are for people's work in it.
        command = ["git", "-C", str(self.folder), "-c", "core.hooksPath=/dev/null", *arguments]
        try:
            done = subprocess.run(
                command, env=environ | {"LC_ALL": "C"}, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
            )
        except FileNotFoundError:
            raise GitError("git is not installed") from None
        except subprocess.TimeoutExpired:
            raise GitError(f"git {arguments[0]} has not ended within {GIT_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise GitError(done.stderr.strip().removeprefix("fatal: ") or f"git {arguments[0]} failed")
        return done.stdout.rstrip("\n")

    def head(self) -> str:
        """The commit that is checked out."""
        return self.git("rev-parse", "--verify", "HEAD^{commit}")

    def dirty(self) -> tuple[str, ...]:
        """Files of `folder` that differ from the commit, those that git does not know of included."""
        entries = self.git("status", "--porcelain=v1", "-z", "--no-renames", "--", ".").split("\0")
        return tuple(entry[3:] for entry in entries if entry)

    def title(self, commit: str) -> str:
        """The first line of a commit's message."""
        return self.git("log", "-1", "--format=%s", commit)

    def commit_of(self, name: str) -> str | None:
        """The commit that a name (branch, tag, abbreviation) stands for; None where there is none."""
        try:
            return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except GitError:
            return None

    def has(self, commit: str) -> bool:
        """Whether a commit is in this clone."""
        return self.commit_of(commit) is not None

    def shallow(self) -> bool:
        """Whether the clone lacks old commits."""
        return self.git("rev-parse", "--is-shallow-repository") == "true"

    def file_at(self, commit: str, path: str) -> str | None:
        """A file of a commit, its path as from `folder`; None where it has none."""
        try:
            return self.git("show", f"{commit}:./{path}")
        except GitError:
            return None

    def prefix(self) -> str:
        """The path of `folder` inside the repository; empty where it is the root."""
        return self.git("rev-parse", "--show-prefix")

    def add_worktree(self, folder: Path, commit: str) -> None:
        """Check a commit out into a folder of its own."""
        self.git("worktree", "add", "--quiet", "--detach", "--force", str(folder), commit)

    def remove_worktree(self, folder: Path) -> None:
        """Delete a worktree, whatever its state, and forget it."""
        self.git("worktree", "remove", "--force", "--force", str(folder))
