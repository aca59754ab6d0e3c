"""Terraform's state as Pulumi's outputs: names by the rules of the mapping, blocks flattened where the SDK has one."""

from __future__ import annotations

from typing import Any

from tests.infra.aws import mapping
from tests.infra.aws.values import UNKNOWN, Fields
from tests.toolchain.aws import sdk


def outputs(kind: str, fields: Fields, properties: sdk.Properties, values: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a resource, or of a data source; what Terraform has as null is left out."""
    found = _outputs(kind, fields, properties, values, top=True)
    return {name: value for name, value in found.items() if value is not None}


def names(kind: str, fields: Fields, properties: sdk.Properties, *, top: bool = True) -> dict[str, str]:
    """Terraform's name → Pulumi's. Those that are the same, but for their case, come first."""
    found: dict[str, str] = {}
    exact = [name for name in properties if mapping.snake(name) in fields]
    for name in [*exact, *properties]:
        key = mapping.argument(kind, fields, name, top=top)
        if key is not None:
            found.setdefault(key, name)
    return found


def _outputs(kind: str, fields: Fields, properties: sdk.Properties, values: Any, *, top: bool = False) -> Any:
    if values is UNKNOWN or values is None:
        return values
    known = names(kind, fields, properties, top=top)
    return {name: _value(kind, fields[key].type, properties[name], values.get(key)) for key, name in known.items()}


def _value(kind: str, what: Any, wanted: Any, value: Any) -> Any:
    if value is UNKNOWN or value is None:
        return value
    several, one = sdk.element(wanted)
    if isinstance(what, dict):
        return _outputs(kind, what, sdk.nested(one) or dict.fromkeys(map(mapping.camel, what)), value)
    if isinstance(what, tuple) and what[0] in ("list", "set"):
        items = [_value(kind, what[1], one, inner) for inner in value]
        return items if several else next(iter(items), None)
    return value
