"""What is wrong with a configuration, a sentence for each fault: the key, what is wrong, and what it may be."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import pulumi
from pydantic import BaseModel

from infra.config.group import NAMESPACE


class ConfigError(pulumi.RunError):
    """The stack's configuration is wrong; `faults` has a sentence for each fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("the stack's configuration is wrong:\n" + "\n".join(f"  - {fault}" for fault in faults))


def sentence(root: type[BaseModel], fault: Mapping[str, Any]) -> str:
    """One of pydantic's faults, found in a configuration of the class `root`."""
    path = [str(part) for part in fault["loc"]]
    key = ":".join([NAMESPACE, ".".join(path)] if path else [NAMESPACE])
    if fault["type"] == "extra_forbidden":
        known = _names(root, path[:-1])
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        return f"{key} is unknown; {hint}"
    if fault["type"] == "missing":
        option = "--path " if len(path) > 1 else ""
        return f"{key} is missing; set it with `pulumi config set {option}{key} …` or in the stack's file"
    if fault["type"] in ("model_type", "model_attributes_type"):
        return f"{key} must be a group of keys ({', '.join(_names(root, path))}), not {fault['input']!r}"
    if fault["type"] == "value_error":
        return f"{key}: {fault['ctx']['error']}"
    return f"{key} is {fault['input']!r}; {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _names(root: type[BaseModel], path: list[str]) -> list[str]:
    """The keys of the group that lies at a path."""
    group: type[BaseModel] | None = root
    for part in path:
        if part.isdigit() or group is None:  # a place in a list of groups
            continue
        group = next((group_in(f.annotation) for n, f in group.model_fields.items() if (f.alias or n) == part), None)
    return [field.alias or name for name, field in group.model_fields.items()] if group else []


def group_in(annotation: Any) -> type[BaseModel] | None:
    """The group that a field holds: itself, several of it, or none at all."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, types.UnionType):
        return next((found for part in get_args(annotation) if (found := group_in(part))), None)
    return None
