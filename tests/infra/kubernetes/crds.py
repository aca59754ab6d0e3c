"""Schemas of kinds that other projects add to a cluster, out of their CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

# Schemas that say what else must hold of a value: its properties are listed beside them.
CONDITIONS = ("allOf", "anyOf", "oneOf", "not")


def validators(files: list[Path]) -> dict[tuple[str, str], jsonschema.Draft4Validator]:
    """(apiVersion, kind) → what refuses objects that the API server would refuse, or of which it would drop a part."""
    found: dict[tuple[str, str], jsonschema.Draft4Validator] = {}
    for file in files:
        for definition in _definitions(file):
            spec = definition["spec"]
            for version in spec["versions"]:
                if version["served"]:
                    schema = _closed(version["schema"]["openAPIV3Schema"])
                    key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                    found[key] = jsonschema.Draft4Validator(schema)
    return found


def _definitions(file: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.load_all(file.read_text(), yaml.CSafeLoader):
        if document and document["kind"] == "CustomResourceDefinition":
            yield document


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without anything that it does not name, unless it says so; the API server drops that in silence."""
    result = dict(schema)
    if "properties" in schema:
        result["properties"] = {name: _closed(inner) for name, inner in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _closed(schema["additionalProperties"])
    if isinstance(schema.get("items"), dict):
        result["items"] = _closed(schema["items"])
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if schema.get("nullable"):
        result["type"] = [schema["type"], "null"]
    return result
