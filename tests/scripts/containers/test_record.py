"""The record of a commit's images is whole at any time and keeps what other pushes of that commit wrote."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.containers import record
from scripts.containers.source import Source


def test_pushes_of_a_commit_add_up(tmp_path: Path) -> None:
    source = Source(tmp_path, "1.0", "a" * 40, "now")
    record.write(tmp_path, source, "r.invalid/x", {"kv": "r.invalid/x/kv@sha256:1"})
    file = record.write(tmp_path, source, "r.invalid/x", {"gateway": "r.invalid/x/gateway@sha256:2"})
    assert file == tmp_path / ".diphase" / "images" / f"{'a' * 40}.json"
    assert json.loads(file.read_text()) == {
        "commit": "a" * 40,
        "version": "1.0",
        "registry": "r.invalid/x",
        "images": {"gateway": "r.invalid/x/gateway@sha256:2", "kv": "r.invalid/x/kv@sha256:1"},
    }
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_another_registry_begins_anew(tmp_path: Path) -> None:
    source = Source(tmp_path, "1.0", "a" * 40, "now")
    record.write(tmp_path, source, "r.invalid/x", {"kv": "r.invalid/x/kv@sha256:1"})
    file = record.write(tmp_path, source, "s.invalid/x", {"gateway": "s.invalid/x/gateway@sha256:2"})
    assert set(json.loads(file.read_text())["images"]) == {"gateway"}
