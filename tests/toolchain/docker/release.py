"""A checkout that tests build images from, commit to, and push: the real `diphase images` over real docker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.toolchain.docker.daemon import Docker

ROOT = Path(__file__).resolve().parents[3]
PARTS = (
    ".dockerignore",
    "LICENSE",
    "Pulumi.yaml",
    "images",
    "infra",
    "pyproject.toml",
    "README.md",
    "requirements",
    "scripts",
)
CALL_SECONDS = 1500.0
WHO = {"NAME": "Release", "EMAIL": "release@example.invalid", "DATE": "2026-01-01T00:00:00Z"}


@dataclass(frozen=True)
class Release:
    """A git checkout of this project's files as they are now."""

    folder: Path
    docker: Docker
    base: str

    @classmethod
    def make(cls, folder: Path, docker: Docker, base: str) -> Release:
        """Copy the files into `folder` and commit them; equal files give an equal commit."""
        folder.mkdir()
        ignored = shutil.ignore_patterns("__pycache__", ".venv")
        for part in (*PARTS, "services"):
            source, target = ROOT / part, folder / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copyfile(source, target)
        (folder / "stacks").mkdir()
        (folder / ".gitignore").write_text("/.diphase/\n__pycache__/\n")
        made = cls(folder, docker, base)
        made.git("init", "--quiet")
        made.commit("Release")
        return made

    def git(self, *arguments: str) -> str:
        """The output of git in the checkout."""
        identity = {f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in WHO.items()}
        environ = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": "/dev/null"}
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=environ, check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """Commit everything; gives the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """`diphase images ARGUMENTS` of the checkout."""
        return subprocess.run(
            [sys.executable, "-c", "from scripts.cli import main; main()", "images", *arguments],
            cwd=self.folder,
            env={**os.environ, **self.docker.environ, "PYTHONPATH": str(self.folder), **environ},
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
        )

    def images(self, *arguments: str, **environ: str) -> str:
        """The same, which must succeed; gives what it printed."""
        done = self.run(*arguments, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def build(self, *roles: str) -> dict[str, str]:
        """Build the images of the commit; role → the name that docker has for it."""
        chosen = [part for role in roles for part in ("--role", role)]
        printed = self.images("build", "--network", "host", "--base-image", self.base, *chosen)
        return {name.split("/")[1].split(":")[0]: name for name in printed.split()}

    def push(self, registry: str) -> dict[str, Any]:
        """Push them to HOST/REPO; gives what .diphase/images/COMMIT.json says."""
        self.images("push", "--registry", registry)
        record: dict[str, Any] = json.loads(
            (self.folder / ".diphase" / "images" / f"{self.git('rev-parse', 'HEAD')}.json").read_text()
        )
        return record
