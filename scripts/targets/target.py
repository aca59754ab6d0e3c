"""The seam between the subcommands and what carries the roles."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from scripts.verification.gather import Target as Tried


class RoleState(NamedTuple):
    """One instance of a role. `where` says what it runs as: {"pid": 4711} or {"node": "gpu-3"}."""

    name: str
    where: Mapping[str, object]
    url: str
    state: str
    ready: bool


class Target(Protocol):
    """One stack, on whatever its roles run on. Methods raise OperationFailed; `outputs` are the stack's."""

    def interrupt(self, heard: bool) -> None:
        """A person wants the operation to end (`heard`), or that is over: steps that wait for roles are to give up."""

    def explain(self) -> str:
        """After an `up` that failed: what is not well and the end of what it logged, unless the fault has said so."""

    def clean(self) -> None:
        """After `down`: end what Pulumi's state did not know of."""

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Write the files for clients that the outputs name, where this machine lacks them."""

    def roles(self, outputs: Mapping[str, Any]) -> list[RoleState]:
        """Every instance of a role and how it is."""

    def reach(self, outputs: Mapping[str, Any]) -> AbstractContextManager[Tried]:
        """The addresses at which `diphase verify` tries the stack, for as long as the context is open."""
