"""Keys are read from hashes, and read again when the file changes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from services.common.errors import ModelForbidden, Unauthorized
from services.common.settings import SettingsError
from services.gateway import keys
from services.gateway.keys import ApiKeys


def entry(name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **more}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps([entry("one", "sk-one"), entry("two", "sk-two", models=["m"])]))
    return path


def test_known_keys(file: Path) -> None:
    known = ApiKeys(file)
    assert known.authenticate("Bearer sk-one").name == "one"
    assert known.authenticate("bearer  sk-two ").name == "two"
    known.authenticate("Bearer sk-one").check_model("anything")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic sk-one", "sk-one", "Bearer sk-on", "Bearer \xff"]
)
def test_unknown_keys(file: Path, header: str | None) -> None:
    with pytest.raises(Unauthorized):
        ApiKeys(file).authenticate(header)


def test_models_of_a_key(file: Path) -> None:
    key = ApiKeys(file).authenticate("Bearer sk-two")
    key.check_model("m")
    with pytest.raises(ModelForbidden, match="two"):
        key.check_model("other")


def test_a_changed_file_is_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "CHECK_SECONDS", 0.0)
    known = ApiKeys(file)
    other = file.with_name("other")
    other.write_text(json.dumps([entry("three", "sk-three")]))
    other.replace(file)
    assert known.authenticate("Bearer sk-three").name == "three"
    with pytest.raises(Unauthorized):
        known.authenticate("Bearer sk-one")
    file.write_text("[{")  # half written: the keys known so far stay valid
    assert known.authenticate("Bearer sk-three").name == "three"
    file.unlink()
    assert known.authenticate("Bearer sk-three").name == "three"


@pytest.mark.parametrize("text", ["", "{}", '[{"name": "a"}]', '[{"name": "a", "sha256": "ABC"}]'])
def test_a_wrong_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(SettingsError, match="GATEWAY_API_KEYS_FILE"):
        ApiKeys(path)
    with pytest.raises(SettingsError, match="GATEWAY_API_KEYS_FILE"):
        ApiKeys(tmp_path / "none")
