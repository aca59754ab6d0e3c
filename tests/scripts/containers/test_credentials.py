"""What `docker login` keeps is found: in its file, behind a helper, or not at all."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from scripts.containers import credentials
from scripts.faults import OperationFailed

HOST = "registry.invalid:5000"


def kept(folder: Path, config: Any) -> dict[str, str]:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return {"DOCKER_CONFIG": str(folder)}


@pytest.mark.parametrize("key", [HOST, f"https://{HOST}", f"https://{HOST}/v2/"])
def test_in_the_file(tmp_path: Path, key: str) -> None:
    entry = {"auth": base64.b64encode(b"me:a:word").decode()}
    assert credentials.find(HOST, kept(tmp_path, {"auths": {key: entry}})) == ("me", "a:word")


@pytest.mark.parametrize("config", [{}, {"auths": {"other.invalid": {"auth": "bWU6eA=="}}}, {"auths": {HOST: {}}}])
def test_nothing_for_this_host(tmp_path: Path, config: dict[str, Any]) -> None:
    assert credentials.find(HOST, kept(tmp_path, config)) is None


def test_no_file(tmp_path: Path) -> None:
    assert credentials.find(HOST, {"DOCKER_CONFIG": str(tmp_path)}) is None


def test_behind_a_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-ours"
    helper.write_text(
        f'#!/bin/sh\nread host\n[ "$1 $host" = "get {HOST}" ] || exit 1\necho \'{{"Username": "me", "Secret": "s"}}\'\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert credentials.find(HOST, kept(tmp_path, {"credHelpers": {HOST: "ours"}})) == ("me", "s")
    assert credentials.find(HOST, kept(tmp_path, {"credsStore": "ours"})) == ("me", "s")
    assert credentials.find("other.invalid", kept(tmp_path, {"credsStore": "ours"})) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "cannot be read"),
        ({"auths": {HOST: {"auth": "!"}}}, f"docker login {HOST}"),
        ({"credHelpers": {HOST: "absent-from-path"}}, "docker-credential-absent-from-path"),
    ],
)
def test_what_is_broken_is_said(tmp_path: Path, config: Any, said: str) -> None:
    with pytest.raises(OperationFailed, match=said):
        credentials.find(HOST, kept(tmp_path, config))
