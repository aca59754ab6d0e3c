"""Bills of materials and scans: by the tools that are there, a notice where none is, a stop where one was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.containers.inventory import Inventory
from scripts.faults import OperationFailed

FOUND = {"Results": [{"Vulnerabilities": [{"Severity": "HIGH"}, {"Severity": "LOW"}]}, {"Vulnerabilities": None}]}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH beside the system's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def tool(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def syft(folder: Path) -> None:
    tool(folder, "syft", '[ "$1 $2 $3" = "scan docker:an/image:1 --output" ] && echo "{}" > "${4#spdx-json=}"')


def trivy(folder: Path, found: object = FOUND) -> None:
    tool(
        folder,
        "trivy",
        f"[ \"$1 $2 $4 $6\" = 'image --format --output an/image:1' ] && echo '{json.dumps(found)}' > \"$5\"",
    )


def test_a_notice_where_there_is_no_tool(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Inventory(tmp_path / "out").take("kv", "an/image:1")
    assert "neither syft nor trivy is on PATH" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_syft_writes_the_materials_and_trivy_what_is_wrong(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    syft(path)
    trivy(path)
    inventory = Inventory(tmp_path / "out")
    inventory.take("kv", "an/image:1")
    assert [file.name for file in inventory.files] == ["kv.spdx.json", "kv.vulnerabilities.json"]
    assert json.loads(inventory.files[1].read_text()) == FOUND
    assert "kv: 0 critical, 1 high, 0 medium, 1 low" in capsys.readouterr().err


def test_trivy_alone_writes_both(path: Path, tmp_path: Path) -> None:
    trivy(path)
    inventory = Inventory(tmp_path / "out")
    inventory.take("kv", "an/image:1")
    assert len(inventory.files) == 2


def test_a_scan_that_fails_stops_nothing_unless_asked_to(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool(path, "trivy", "echo no database; exit 1")
    Inventory(tmp_path / "out").take("kv", "an/image:1")
    assert "no database" in capsys.readouterr().err
    with pytest.raises(OperationFailed, match="no database"):
        Inventory(tmp_path / "out", "critical").take("kv", "an/image:1")


def test_the_severity_that_was_named_stops_a_push(path: Path, tmp_path: Path) -> None:
    trivy(path)
    Inventory(tmp_path / "out", "critical").take("kv", "an/image:1")
    for severity in ("high", "medium"):
        with pytest.raises(OperationFailed, match="1 high"):
            Inventory(tmp_path / "out", severity).take("kv", "an/image:1")


def test_a_limit_without_a_scanner_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="needs trivy"):
        Inventory(tmp_path / "out", "high")
