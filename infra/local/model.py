"""The model as a resource: fetched or converted once into the cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, UpdateResult

from infra.local.supervisord import LocalError
from infra.provider import StackProvider

PREPARE_SECONDS = 3600.0


class ModelProvider(StackProvider):
    """Runs the worker's model preparation; the cache keeps the result, so deletion leaves it."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        return CreateResult(props["source"], _prepare(props))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        return ReadResult(id_, props) if (Path(props["path"]) / "config.json").is_file() else ReadResult("", {})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        return DiffResult(any(_olds.get(key) != _news.get(key) for key in ("source", "wanted", "cache")))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        return UpdateResult(_prepare(_news))


def _prepare(props: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "services.worker.model", props["source"], "--cache", props["cache"]]
    if props.get("wanted"):
        command += ["--revision", props["wanted"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PREPARE_SECONDS, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise LocalError(f"the model {props['source']} (diphase:model.source) cannot be prepared: {said[0]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {**props, "path": found["path"], "name": found["name"], "revision": found["revision"]}


class LocalModel(Resource, module="local", name="Model"):
    """A folder that gateway and workers load."""

    path: pulumi.Output[str]
    name: pulumi.Output[str]
    revision: pulumi.Output[str]

    def __init__(
        self, name: str, source: str, revision: str | None, cache: Path, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {
            "source": source,
            "wanted": revision or "",
            "cache": str(cache),
            "path": None,
            "name": None,
            "revision": None,
        }
        super().__init__(ModelProvider(), name, props, opts)
