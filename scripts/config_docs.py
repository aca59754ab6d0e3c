"""Writes docs/config.md and docs/config.schema.json from infra.config: `python -m scripts.config_docs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.config import NAMESPACE, StackConfig

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
    """The page, a table for each group."""
    parts = [INTRODUCTION]
    for name, field in StackConfig.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            parts.append(f"## {name}\n\n{group.__doc__}\n\n{_table(group)}")
        else:
            parts.append(
                f"## {name}\n\n{(field.description or '').capitalize()}: {_type(_schema(StackConfig, name))}.\n"
            )
    return "\n".join(parts)


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


def _table(group: type[BaseModel]) -> str:
    lines = ["| Key | Value | Default | |", "|---|---|---|---|"]
    for name, field in group.model_fields.items():
        key = field.alias or name
        lines.append(f"| `{key}` | {_type(_schema(group, key))} | {_default(field)} | {field.description or ''} |")
    return "\n".join(lines) + "\n"


def _schema(group: type[BaseModel], key: str) -> dict[str, Any]:
    found: dict[str, Any] = group.model_json_schema(by_alias=True)["properties"][key]
    return next((option for option in found.get("anyOf", []) if option["type"] != "null"), found)


def _type(found: dict[str, Any]) -> str:
    if "enum" in found or "const" in found:
        return " or ".join(f"`{value}`" for value in found.get("enum", [found.get("const")]))
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    bounds = [f"{sign} {found[key]:g}" for key, sign in words.items() if key in found]
    return " ".join([found["type"], ", ".join(bounds)]).strip()


def _default(field: FieldInfo) -> str:
    if field.default is None:
        return ""
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def main() -> None:
    """Write both files."""
    (DOCS / "config.md").write_text(markdown(), encoding="utf-8")
    (DOCS / "config.schema.json").write_text(schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
