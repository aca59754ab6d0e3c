"""Waiting until roles are ready, and the resource that ends an `up`: all of them are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, UpdateResult

from infra.local.health import log_tail, ready
from infra.local.supervisord import LocalError, Supervisord
from infra.provider import StackProvider

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Watched:
    """A role to wait for."""

    instance: str
    url: str
    log: Path


def await_ready(daemon: Supervisord, roles: Sequence[Watched], seconds: float) -> None:
    """Return when every role is ready.

    Raises LocalError, naming the role and the end of its log, at the first that ends or at the deadline.
    """
    deadline = time.monotonic() + seconds
    waiting = list(roles)
    pids: dict[str, int] = {}
    while waiting:
        if daemon.interrupted():
            raise LocalError(f"interrupted while waiting for {', '.join(role.instance for role in waiting)}")
        for role in list(waiting):
            info = daemon.info(role.instance)
            if info is None:
                raise LocalError(f"{role.instance} is not under supervision any more: run `diphase up` again")
            pid = int(info["pid"])
            crashed = info["statename"] in ("BACKOFF", "FATAL", "EXITED", "UNKNOWN")
            if crashed or (pid and pids.setdefault(role.instance, pid) != pid):
                why = info["spawnerr"] or f"status {info['exitstatus']}"
                raise LocalError(
                    f"{role.instance} ended while it started ({why}). Its log ends with:\n{log_tail(role.log)}"
                )
            if pid and ready(role.url):
                waiting.remove(role)
        if waiting and time.monotonic() > deadline:
            tails = "\n".join(f"{role.instance}'s log ends with:\n{log_tail(role.log)}" for role in waiting)
            names = ", ".join(role.instance for role in waiting)
            raise LocalError(f"not ready within {seconds:.0f} s (diphase:local.readySeconds): {names}. {tails}")
        if waiting:
            time.sleep(POLL_SECONDS)


class ReadinessProvider(StackProvider):
    """Making it is waiting; nothing remains to be deleted."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        self._wait(props)
        return CreateResult("ready", props)

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        return DiffResult(_olds.get("roles") != _news["roles"] or _olds.get("seconds") != _news["seconds"])

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        self._wait(_news)
        return UpdateResult(_news)

    @staticmethod
    def _wait(props: dict[str, Any]) -> None:
        roles = [Watched(role["instance"], role["url"], Path(role["log"])) for role in props["roles"]]
        await_ready(Supervisord(Path(props["run"])), roles, props["seconds"])


class Readiness(Resource, module="local", name="Readiness"):
    """All roles answer 200 on /ready."""

    def __init__(
        self,
        name: str,
        run: pulumi.Input[str],
        roles: Sequence[pulumi.Input[dict[str, Any]]],
        seconds: float,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(ReadinessProvider(), name, {"run": run, "roles": list(roles), "seconds": seconds}, opts)
