"""The key of the stack's gateway as a resource: a file only its owner reads, made once and kept over updates."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource

from infra.paths import StackPaths
from infra.provider import StackProvider


class ApiKeyProvider(StackProvider):
    """Keeps the key out of Pulumi's state: that has its hash only."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        key, hashes = Path(props["path"]), Path(props["hashes"])
        key.parent.mkdir(parents=True, exist_ok=True)
        if not _text(key):
            _write(key, f"sk-diphase-{secrets.token_urlsafe(24)}\n")
        _write(hashes, json.dumps([{"name": "default", "sha256": _sha256(key)}], indent=2) + "\n")
        return CreateResult(str(key), {**props, "sha256": _sha256(key)})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        key, hashes = Path(props["path"]), Path(props["hashes"])
        # A key that was replaced by hand is no drift to undo: making the resource again hashes it.
        if not _text(key) or _sha256(key) not in _text(hashes):
            return ReadResult("", {})
        return ReadResult(id_, {**props, "sha256": _sha256(key)})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        moved = [key for key in ("path", "hashes") if _olds.get(key) != _news[key]]
        return DiffResult(bool(moved), moved, delete_before_replace=True)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        Path(_props["path"]).unlink(missing_ok=True)
        Path(_props["hashes"]).unlink(missing_ok=True)


def _text(path: Path) -> str:
    return path.read_text().strip() if path.is_file() else ""


def _sha256(path: Path) -> str:
    return hashlib.sha256(_text(path).encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    # Made with its final mode under another name: never readable by others, never half written.
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
        handle.write(text)
    partial.replace(path)


class ApiKey(Resource, module="local", name="ApiKey"):
    """`path` holds the key, `hashes` what the gateway reads."""

    path: pulumi.Output[str]
    hashes: pulumi.Output[str]
    sha256: pulumi.Output[str]

    def __init__(self, name: str, paths: StackPaths, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"path": str(paths.api_key), "hashes": str(paths.api_keys), "sha256": None}
        super().__init__(ApiKeyProvider(), name, props, opts)
