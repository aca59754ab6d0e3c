"""A resource as it is declared, and how rules look into it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# In place of a value that nobody knows before an update; a rule that needs it says nothing.
UNKNOWN = "(unknown)"


@dataclass(frozen=True)
class Resource:
    """A resource: Pulumi's type token, logical name, inputs in Pulumi's names, options. `dependencies` are URNs."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    urn: str = ""
    protect: bool = False
    ignored: Sequence[str] = ()
    dependencies: Sequence[str] = field(default=())

    @property
    def kind(self) -> str:
        """The last part of the type, such as LaunchTemplate."""
        return self.type.rpartition(":")[2]


Judge = Callable[[Resource, Sequence[Resource]], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """`judge` yields what is wrong with a resource, given all of them; `types` are those that it looks at.

    `whole` is whether it needs the others: then it can be asked only when all of them are declared.
    """

    name: str
    says: str
    types: frozenset[str]
    judge: Judge
    whole: bool = False


def at(inputs: Any, *path: str | int) -> Any:
    """The value at a path; None where something on it is missing, UNKNOWN where it is not known yet."""
    for step in path:
        if inputs == UNKNOWN:
            return UNKNOWN
        if isinstance(step, int):
            inputs = inputs[step] if isinstance(inputs, list) and step < len(inputs) else None
        else:
            inputs = inputs.get(step) if isinstance(inputs, Mapping) else None
    return inputs


def each(inputs: Any, *path: str | int) -> list[Any]:
    """The list at a path; empty where there is none or it is unknown."""
    found = at(inputs, *path)
    return found if isinstance(found, list) else []


def missing(inputs: Any, *path: str | int) -> bool:
    """Whether there is nothing at a path; what is unknown is there."""
    return at(inputs, *path) in (None, "", [], {})


def differs(wanted: Any, inputs: Any, *path: str | int) -> bool:
    """Whether the value at a path is known and another; booleans may be text."""
    found = at(inputs, *path)
    if isinstance(wanted, bool) and isinstance(found, str):
        found = {"true": True, "false": False}.get(found, found)
    return found not in (wanted, UNKNOWN)


def document(value: Any) -> list[Mapping[str, Any]]:
    """The statements of a policy document; empty where it is unknown."""
    if not isinstance(value, str) or UNKNOWN in value[: len(UNKNOWN)]:
        return []
    found = json.loads(value).get("Statement", [])
    return [found] if isinstance(found, dict) else list(found)


def several(value: Any) -> list[Any]:
    """A field of a statement that may be one or several."""
    return value if isinstance(value, list) else [value]
