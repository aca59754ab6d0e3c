"""A checkout of its own for a test: a small git repository with the project's files, its environment, and a stack."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.stack import ROOT, Stack


class Checkout(Stack):
    """`project` becomes a repository with one commit; its `diphase` is its own."""

    def __post_init__(self) -> None:
        self.diphase = self.project / ".venv" / "bin" / "diphase"
        listed = self._run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], ROOT)
        for name in listed.split("\0"):
            if (ROOT / name).is_file():
                (self.project / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.project / name)
        self.write_config()
        self.git("init", "--quiet")
        self.commit("The first")
        # With the interpreter of this environment: what it needs is in the cache.
        self._run([os.path.realpath(sys.executable), "-m", "scripts.bootstrap"], self.project)

    @property
    def environ(self) -> dict[str, str]:
        """Byte code is kept, whatever the tests do: a new environment has none, and it is used a dozen times."""
        return {name: value for name, value in super().environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def git(self, *arguments: str) -> str:
        """The output of git in the checkout."""
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
        return self._run(["git", *identity, *arguments], self.project)

    def commit(self, title: str) -> str:
        """Commit everything; gives the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", title)
        return self.head

    @property
    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    @property
    def releases(self) -> list[Path]:
        """The folders of earlier releases."""
        folder = self.project / ".diphase" / "releases"
        return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []

    @staticmethod
    def _run(command: list[str], folder: Path) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout.rstrip("\n")
