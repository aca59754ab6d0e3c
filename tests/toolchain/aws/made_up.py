"""Values that AWS would compute, for resources that are planned and never made."""

from __future__ import annotations

from typing import Any

from tests.infra.aws import mapping
from tests.infra.aws.values import UNKNOWN, Field, Fields


def filled(kind: str, token: str, name: str, fields: Fields, planned: dict[str, Any]) -> dict[str, Any]:
    """A plan with something in place of what is unknown in it."""
    found = {key: _filled(kind, key, name, field, planned.get(key)) for key, field in fields.items()}
    if planned.get("id") is UNKNOWN:
        found["id"] = mapping.made_up_id(token, name)
    return found


def _filled(kind: str, key: str, name: str, field: Field, value: Any) -> Any:
    if value is UNKNOWN:
        return _invented(kind, key, name, field)
    return _inside(kind, name, field.type, value)


def _inside(kind: str, name: str, what: Any, value: Any) -> Any:
    if value is None or isinstance(what, str):
        return value
    if isinstance(what, dict):
        return {key: _filled(kind, key, name, field, value.get(key)) for key, field in what.items()}
    if what[0] == "map":
        return {key: _plain(kind, name, what[1], inner) for key, inner in value.items()}
    return [_plain(kind, name, what[1], inner) for inner in value]


def _plain(kind: str, name: str, what: Any, value: Any) -> Any:
    return f"{name}-made-up" if value is UNKNOWN else _inside(kind, name, what, value)


def _invented(kind: str, key: str, name: str, field: Field) -> Any:
    """What only AWS decides has a value; what it decides because nobody said so is empty, so that it is kept."""
    chosen = field.optional and field.computed
    if field.type == "string":
        text = mapping.made_up_text(kind, key, field, name)
        return None if chosen and not key.endswith(("arn", "name")) else text or f"{name}-{key}".replace("_", "-")
    if isinstance(field.type, str):
        return None if chosen else {"number": 1, "bool": False}.get(field.type)
    if isinstance(field.type, dict) or field.type[0] == "map":
        return {}
    inner = field.type[1]
    if isinstance(inner, dict) and not chosen:
        return [_inside(kind, name, inner, dict.fromkeys(inner, UNKNOWN))]
    return []
