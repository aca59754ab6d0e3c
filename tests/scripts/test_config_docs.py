"""The page and the schema of the configuration are those of the code."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from infra.config import StackConfig
from infra.config.faults import group_in
from scripts import config_docs


@pytest.mark.parametrize(
    ("name", "make"), [("config.md", config_docs.markdown), ("config.schema.json", config_docs.schema)]
)
def test_what_is_committed_is_current(name: str, make: object) -> None:
    assert callable(make)
    committed = (config_docs.DOCS / name).read_text(encoding="utf-8")
    assert committed == make(), "write it again with `python -m scripts.config_docs`"


def test_the_page_names_every_key() -> None:
    page = config_docs.markdown()
    pending: list[type[BaseModel]] = [StackConfig]
    while pending:
        for name, field in pending.pop().model_fields.items():
            assert f"| `{field.alias or name}` |" in page or f"## {name}\n" in page
            inner = group_in(field.annotation)
            pending += [inner] if inner else []
