"""What was pushed, as `.diphase/images/COMMIT.json`: each role's image by its digest, for whoever deploys it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from scripts.containers.source import Source


def path(project: Path, commit: str) -> Path:
    """The file of a commit."""
    return project / ".diphase" / "images" / f"{commit}.json"


def write(project: Path, source: Source, registry: str, images: Mapping[str, str]) -> Path:
    """Write the references, HOST/REPO/ROLE@sha256:…, at once; those of roles that were not pushed now are kept."""
    file = path(project, source.commit)
    file.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(file.read_text()) if file.exists() else {}
    kept = before.get("images", {}) if before.get("registry") == registry else {}
    partial = file.with_suffix(".partial")
    document = {
        "commit": source.commit,
        "version": source.version,
        "registry": registry,
        "images": dict(sorted({**kept, **images}.items())),
    }
    partial.write_text(json.dumps(document, indent=2) + "\n")
    partial.replace(file)
    return file
