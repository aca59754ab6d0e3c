"""What this checkout would deploy: its commit, what differs from it, its version, the images that it names."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

from infra.paths import CODE
from scripts.releases.record import Record, new_attempt
from scripts.releases.repository import GitError, Repository


def describe(config_file: Path, title: str = "") -> tuple[str, Record]:
    """Title and record of an update by this code; the title is the commit's unless one is given."""
    repository = Repository(CODE)
    try:
        commit, dirty = repository.head(), repository.dirty()
        title = title or repository.title(commit)
    except GitError:
        commit, dirty = None, ()
    record = Record(commit, dirty, _version(), images_of(config_of(config_file)), attempt=new_attempt())
    return title, record


def warning(record: Record) -> str | None:
    """What keeps a rollback from bringing exactly this back; None where nothing does."""
    if record.commit is None:
        return "this is no git checkout, so no commit is recorded: a rollback to this update will not be possible"
    if record.dirty:
        some = ", ".join(record.dirty[:3]) + (", …" if len(record.dirty) > 3 else "")
        return (
            f"the checkout is dirty ({some}): a rollback to this update will bring commit {record.commit[:12]} "
            "without these changes; the stack's configuration is recorded whole"
        )
    return None


def config_of(config_file: Path) -> dict[str, Any]:
    """The configuration in a stack's file; empty where it cannot be read, which the engine will say better."""
    try:
        document = yaml.safe_load(config_file.read_text())
    except (OSError, yaml.YAMLError):
        return {}
    config = document.get("config") if isinstance(document, dict) else None
    return config if isinstance(config, dict) else {}


def images_of(config: dict[str, Any]) -> dict[str, str]:
    """Each role's image by digest, as a configuration names it."""
    group = config.get("diphase:images")
    digests = group.get("digests") if isinstance(group, dict) else None
    return {str(role): str(image) for role, image in digests.items()} if isinstance(digests, dict) else {}


def _version() -> str:
    try:
        project = tomllib.loads((CODE / "pyproject.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return ""
    return str(project.get("project", {}).get("version", ""))
