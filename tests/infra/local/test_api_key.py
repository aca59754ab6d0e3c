"""The gateway's key: made once, kept, private, and never in Pulumi's state."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest

from infra.local.api_key import ApiKeyProvider

PROVIDER = ApiKeyProvider()


@pytest.fixture
def props(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "stack" / "api_key"), "hashes": str(tmp_path / "stack" / "api_keys.json")}


def test_the_key_is_private_and_the_gateway_gets_its_hash(props: dict[str, str]) -> None:
    made = PROVIDER.create(props)
    key = Path(props["path"]).read_text().strip()
    digest = hashlib.sha256(key.encode()).hexdigest()
    assert json.loads(Path(props["hashes"]).read_text()) == [{"name": "default", "sha256": digest}]
    assert stat.S_IMODE(Path(props["path"]).stat().st_mode) == 0o600
    assert made.outs == {**props, "sha256": digest}
    assert key not in json.dumps(made.outs)


def test_making_it_again_keeps_the_key(props: dict[str, str]) -> None:
    assert PROVIDER.create(props).outs == PROVIDER.create(props).outs


def test_two_stacks_have_two_keys(props: dict[str, str], tmp_path: Path) -> None:
    other = {name: str(tmp_path / "other" / Path(path).name) for name, path in props.items()}
    first, second = PROVIDER.create(props).outs, PROVIDER.create(other).outs
    assert first is not None
    assert second is not None
    assert first["sha256"] != second["sha256"]


def test_a_key_that_is_gone_or_was_replaced_is_made_anew(props: dict[str, str]) -> None:
    known = PROVIDER.create(props).outs
    assert known is not None
    assert PROVIDER.read(props["path"], known).outs == known
    Path(props["path"]).write_text("mine\n")
    assert PROVIDER.read(props["path"], known).id == ""
    renewed = PROVIDER.create(props).outs
    assert renewed is not None
    assert renewed["sha256"] == hashlib.sha256(b"mine").hexdigest()
    Path(props["path"]).unlink()
    assert PROVIDER.read(props["path"], known).id == ""


def test_deleting_removes_both_files_and_may_be_repeated(props: dict[str, str]) -> None:
    known = PROVIDER.create(props).outs
    assert known is not None
    PROVIDER.delete(props["path"], known)
    PROVIDER.delete(props["path"], known)
    assert list(Path(props["path"]).parent.iterdir()) == []
