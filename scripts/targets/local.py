"""The local target: programs of one supervisord."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.local.health import ready
from infra.local.supervisord import LocalError, Supervisord
from infra.paths import PathError, StackPaths
from scripts.faults import OperationFailed
from scripts.targets.client import client
from scripts.targets.target import RoleState
from scripts.verification.gather import Target as Tried

STOP_SECONDS = 60.0


class LocalTarget:
    """A stack whose roles are processes of this machine."""

    def __init__(self, stack: str, project: Path, cache: Path) -> None:
        self._stack, self._project = stack, project
        try:
            self._daemon = Supervisord(StackPaths.of(project, stack, cache).run)
        except PathError as error:
            raise OperationFailed(str(error)) from None

    def interrupt(self, heard: bool) -> None:
        self._daemon.interrupt(heard)

    def explain(self) -> str:
        return ""  # Readiness names the role and shows its log's end

    def clean(self) -> None:
        # The state was deleted, or an `up` was cut short.
        try:
            self._daemon.stop(STOP_SECONDS)
        except LocalError as error:
            raise OperationFailed(str(error)) from None

    def keep(self, outputs: Mapping[str, Any]) -> None:
        pass  # ApiKey has written them

    def roles(self, outputs: Mapping[str, Any]) -> list[RoleState]:
        with ThreadPoolExecutor(max_workers=16) as pool:
            return list(pool.map(lambda role: _role(Path(outputs["run"]), role), outputs["roles"]))

    @contextmanager
    def reach(self, outputs: Mapping[str, Any]) -> Iterator[Tried]:
        roles = [(role["name"], role["url"].rstrip("/")) for role in outputs.get("roles", [])]
        yield client(self._stack, self._project, outputs, roles)


def _role(run: Path, role: Mapping[str, Any]) -> RoleState:
    try:
        info = Supervisord(run).info(role["name"])
    except LocalError:
        info = None
    pid = (info["pid"] or None) if info else None
    state = info["statename"].lower() if info else "absent"
    return RoleState(role["name"], {"pid": pid}, role["url"], state, bool(pid) and ready(role["url"]))
