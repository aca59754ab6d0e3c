"""Writes docs/config.md and docs/config.schema.json from infra.config: `python -m scripts.config_docs`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.config import NAMESPACE, StackConfig
from infra.config.faults import group_in

DOCS = Path(__file__).resolve().parent.parent / "docs"
INTRODUCTION = f"""\
# Configuration of a stack

<!-- Written by `python -m scripts.config_docs` from infra/config/; change it there. -->

A stack's file is `stacks/Pulumi.<stack>.yaml`. Its keys lie under `{NAMESPACE}:`, one for each group:

```yaml
config:
  {NAMESPACE}:target: local
  {NAMESPACE}:decode:
    replicas: 2
    maxTokens: 512
```

`pulumi config set --path {NAMESPACE}:decode.replicas 2` writes the same. What is absent has its default. An unknown key
or a wrong value is refused before anything is made, every fault at once. An editor that knows JSON schemas has them in
[config.schema.json](config.schema.json).
"""


def markdown() -> str:
    """The page, a table for each group; one that occurs at several places is told where it occurs first."""
    parts, places = [INTRODUCTION], dict[type[BaseModel], str]()
    for name, field in StackConfig.model_fields.items():
        group = group_in(field.annotation)
        if group:
            parts += _sections(name, group, places)
        else:
            found = StackConfig.model_json_schema(by_alias=True)["properties"][name]
            parts.append(f"## {name}\n\n{(field.description or '').capitalize()}: {_type(found)}.\n")
    return "\n".join(parts)


def _sections(path: str, group: type[BaseModel], places: dict[type[BaseModel], str]) -> Iterator[str]:
    """A group's own section, then those of the groups inside it that have none yet."""
    new = {}
    for name, field in group.model_fields.items():
        inner = group_in(field.annotation)
        if inner and inner not in places:
            new[inner] = places[inner] = f"{path}.{field.alias or name}"
    level = "###" if "." in path else "##"
    yield f"{level} {path}\n\n{inspect.getdoc(group)}\n\n{_table(group, places)}"
    for inner, place in new.items():
        yield from _sections(place, inner, places)


def schema() -> str:
    """The JSON schema of the `config` section of a stack's file."""
    found = StackConfig.model_json_schema(by_alias=True)
    properties = {f"{NAMESPACE}:{name}": value for name, value in found["properties"].items()}
    config = {"type": "object", "properties": properties, "required": [f"{NAMESPACE}:target"]}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pulumi.<stack>.yaml of Diphase",
        "type": "object",
        "properties": {"config": config},
        "$defs": found["$defs"],
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _table(group: type[BaseModel], places: dict[type[BaseModel], str]) -> str:
    lines = ["| Key | Value | Default | |", "|---|---|---|---|"]
    found = group.model_json_schema(by_alias=True)["properties"]
    for name, field in group.model_fields.items():
        key = field.alias or name
        inner = group_in(field.annotation)
        if inner:
            kind = "list of groups" if get_origin(field.annotation) is list else "group"
            value = f"{kind}: [{places[inner]}](#{places[inner].replace('.', '').lower()})"
        else:
            value = _type(found[key])
        lines.append(f"| `{key}` | {value} | {_default(field)} | {field.description or ''} |")
    return "\n".join(lines) + "\n"


def _type(found: dict[str, Any]) -> str:
    found = next((option for option in found.get("anyOf", []) if option["type"] != "null"), found)
    if "enum" in found or "const" in found:
        return " or ".join(f"`{value}`" for value in found.get("enum", [found.get("const")]))
    if found["type"] == "array":
        return f"list of {_type(found['items'])}"
    if found["type"] == "object":
        return f"mapping of {_type(found['additionalProperties'])}"
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    bounds = [f"{sign} {found[key]:.10g}" for key, sign in words.items() if key in found]
    return " ".join([found["type"], ", ".join(bounds)]).strip()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default is None or default == [] or default == {} or isinstance(default, BaseModel):
        return ""
    if isinstance(default, bool):
        return f"`{default}`".lower()
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def main() -> None:
    """Write both files."""
    (DOCS / "config.md").write_text(markdown(), encoding="utf-8")
    (DOCS / "config.schema.json").write_text(schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
