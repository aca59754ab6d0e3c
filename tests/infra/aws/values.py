"""Terraform's values: the fields of a schema, and how values travel between Terraform and a provider."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgpack


class _Unknown:
    """A value that is known only once something is made."""

    def __repr__(self) -> str:
        return "(known after apply)"


UNKNOWN = _Unknown()
# Terraform's msgpack has unknown values as an extension of kind 0 (docs/plugin-protocol/object-wire-format.md there).
ON_THE_WIRE = msgpack.ExtType(0, b"\0")


@dataclass(frozen=True)
class Field:
    """An argument or a block: `type` is string, number, bool, dynamic, a pair of kind and type, or a mapping."""

    type: Any
    required: bool = False
    optional: bool = True
    computed: bool = False
    block: str | None = None
    most: int = 0


Fields = dict[str, Field]
NESTING = {1: "single", 5: "single", 2: "list", 3: "set", 4: "map"}


def fields_of(block: Any) -> Fields:
    """A block of the provider's schema."""
    found = {}
    for one in block.attributes:
        found[one.name] = Field(_type(json.loads(one.type)), one.required, one.optional, one.computed)
    for one in block.block_types:
        kind, inner = NESTING[one.nesting], fields_of(one.block)
        found[one.type_name] = Field(
            inner if kind == "single" else (kind, inner), one.min_items > 0, True, False, kind, one.max_items
        )
    return found


def _type(said: Any) -> Any:
    if isinstance(said, str):
        return said
    if said[0] == "object":
        return {name: Field(_type(inner)) for name, inner in said[1].items()}
    return (said[0], _type(said[1]))


def encode(kind: Any, value: Any, block: str | None = None) -> Any:
    """A value as the provider reads it: every field present, what is absent null, blocks that are absent empty."""
    if value is UNKNOWN:
        return ON_THE_WIRE
    if isinstance(kind, dict):
        return None if value is None else {n: encode(f.type, value.get(n), f.block) for n, f in kind.items()}
    if value is None:
        return [] if block in ("list", "set") else None
    if kind == "string":
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind == "number":
        return int(value) if float(value).is_integer() else float(value)
    if kind == "bool":
        return {"true": True, "false": False}[str(value).lower()]
    if kind == "dynamic":
        return [b'"string"', str(value)]
    if kind[0] == "map":
        return {name: encode(kind[1], inner) for name, inner in value.items()}
    return [encode(kind[1], inner) for inner in (value if isinstance(value, list) else [value])]


def decode(kind: Any, value: Any) -> Any:
    """A value as the provider answers it."""
    if isinstance(value, msgpack.ExtType):
        return UNKNOWN
    if value is None:
        return None
    if isinstance(kind, dict):
        return {name: decode(field.type, value.get(name)) for name, field in kind.items()}
    if kind == "number":
        return value if isinstance(value, (int, float)) else float(value)
    if isinstance(kind, str):
        return value[1] if kind == "dynamic" else value
    if kind[0] == "map":
        return {name: decode(kind[1], inner) for name, inner in value.items()}
    return [decode(kind[1], inner) for inner in value]


def same(kind: Any, one: Any, other: Any) -> bool:
    """Whether two values are one and the same to Terraform: sets have no order, and an absent block is no block."""
    return canonical(kind, one) == canonical(kind, other)


def canonical(kind: Any, value: Any) -> str:
    if value is UNKNOWN or value is None:
        return repr(value)
    if isinstance(kind, dict):
        empty = {name: [] if field.block in ("list", "set") else None for name, field in kind.items()}
        return repr([(n, canonical(f.type, empty[n] if value.get(n) is None else value[n])) for n, f in kind.items()])
    if isinstance(kind, str):
        return repr(float(value)) if kind == "number" else repr(value)
    if kind[0] == "map":
        return repr(sorted((name, canonical(kind[1], inner)) for name, inner in value.items()))
    items = [canonical(kind[1], inner) for inner in value]
    return repr(sorted(items) if kind[0] == "set" else items)
