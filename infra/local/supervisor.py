"""The supervisor resource: one supervisord for each stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource

from infra.local.supervisord import Supervisord
from infra.paths import StackPaths
from infra.provider import StackProvider


class SupervisorProvider(StackProvider):
    """Starts supervisord, and ends it with everything that it runs."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        Supervisord(Path(props["run"])).start(Path(props["log"]))
        return CreateResult(props["run"], props)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        return ReadResult(id_, props) if Supervisord(Path(id_)).alive() else ReadResult("", {})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        replaces = [key for key in ("run", "log") if _olds.get(key) != _news[key]]
        changed = bool(replaces) or _olds.get("stopSeconds") != _news["stopSeconds"]
        return DiffResult(changed, replaces, delete_before_replace=True)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> Any:
        return pulumi.dynamic.UpdateResult(_news)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        Supervisord(Path(_id)).stop(_props["stopSeconds"])


class Supervisor(Resource, module="local", name="Supervisor"):
    """supervisord, listening on a Unix socket in the stack's run folder."""

    run: pulumi.Output[str]

    def __init__(
        self, name: str, paths: StackPaths, stop_seconds: float, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        log = str(paths.log("supervisord"))
        super().__init__(
            SupervisorProvider(), name, {"run": str(paths.run), "log": log, "stopSeconds": stop_seconds}, opts
        )
