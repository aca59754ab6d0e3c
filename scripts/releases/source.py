"""What this checkout would deploy: its commit, what differs from it, its version."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

from infra.paths import CODE
from scripts.releases.record import Record, new_attempt
from scripts.releases.repository import GitError, Repository


def describe(title: str = "") -> tuple[str, Record]:
    """Title and record of an update by this code; the title is the commit's unless one is given."""
    repository = Repository(CODE)
    try:
        commit, dirty = repository.head(), repository.dirty()
        title = title or repository.title(commit)
    except GitError:
        commit, dirty = None, ()
    record = Record(commit, dirty, _version(), attempt=new_attempt())
    return title, record


def warning(record: Record) -> str | None:
    """What keeps a rollback from bringing exactly this back; None where nothing does."""
    if record.commit is None:
        return "this is no git checkout, so no commit is recorded: a rollback to this update will not be possible"
    if record.dirty_code:
        some = ", ".join(record.dirty_code[:3]) + (", …" if len(record.dirty_code) > 3 else "")
        return (
            f"the checkout is dirty ({some}): a rollback to this update will bring commit {record.commit[:12]} "
            "without these changes"
        )
    if record.dirty:
        return f"{', '.join(record.dirty)} is not committed; what it says now is recorded with this update"
    return None


def config_of(config_file: Path) -> dict[str, Any]:
    """The configuration in a stack's file; empty where it cannot be read, which the engine will say better."""
    try:
        document = yaml.safe_load(config_file.read_text())
    except (OSError, yaml.YAMLError):
        return {}
    config = document.get("config") if isinstance(document, dict) else None
    return config if isinstance(config, dict) else {}


def _version() -> str:
    try:
        project = tomllib.loads((CODE / "pyproject.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return ""
    return str(project.get("project", {}).get("version", ""))
