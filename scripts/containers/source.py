"""What images are built from: the project's version and commit, and whether files differ from that commit."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from scripts.faults import OperationFailed
from scripts.releases.repository import GitError, Repository

# What .dockerignore lets into a build, and itself.
CONTEXT = (".dockerignore", "images", "requirements", "services")


@dataclass(frozen=True)
class Source:
    """A state of a checkout. `commit` is that of git; where files differ from it, `-dirty-` and their hash follow."""

    folder: Path
    version: str
    commit: str
    created: str  # the commit's time, RFC 3339: two builds of one commit say the same
    changed: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """VERSION-COMMIT, the commit shortened to twelve digits."""
        digits, *dirty = self.commit.split("-", 1)
        return "-".join([self.version, digits[:12], *dirty])


def read(folder: Path) -> Source:
    """The checkout in `folder` as it is now; raises OperationFailed where it is none."""
    version: str = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    repository = Repository(folder)
    try:
        commit, created = repository.head(), repository.git("log", "-1", "--format=%cI")
        differing = repository.dirty()
    except GitError as error:
        raise OperationFailed(f"an image says which commit it is of, but {folder}: {error}") from None
    changed = tuple(sorted(name for name in differing if name.split("/")[0] in CONTEXT))
    if changed:
        commit = f"{commit}-dirty-{_hash(folder, changed)[:8]}"
    return Source(folder, version, commit, created, changed)


def _hash(folder: Path, names: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name in names:
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()
