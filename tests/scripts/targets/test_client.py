"""What a client holds, by a stack's outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.faults import OperationFailed
from scripts.targets.client import client
from scripts.targets.local import LocalTarget

SHORT = Path("/short")  # sockets have short paths; nothing is made there


def outputs(**gateway: str) -> dict[str, Any]:
    roles = [{"name": "kv-0", "url": "http://127.0.0.1:2/", "log": "x"}]
    return {"gateway": {"url": "http://127.0.0.1:1/", **gateway}, "roles": roles}


def test_the_local_target_is_tried_as_the_stack_exports_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    with LocalTarget("local", tmp_path, SHORT).reach(outputs(apiKeyFile="key")) as tried:
        assert tried == ("local", "http://127.0.0.1:1", "sk-1", [("kv-0", "http://127.0.0.1:2")], None, "")
        assert tried.workers == {}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({}, "stack s is not up"),
        (outputs(apiKeyFile="none"), "the API key in .*none cannot be read"),
        (outputs(apiKeyFile="key", caFile="none"), "the CA certificate in .*none cannot be read"),
    ],
)
def test_what_cannot_be_tried_is_said(tmp_path: Path, found: dict[str, Any], says: str) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    with pytest.raises(OperationFailed, match=f"{says}.*diphase up --stack s"):
        client("s", tmp_path, found, [])
