"""Imports between packages go one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROLES = {"gateway", "scheduler", "worker", "kv"}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _forbidden(importer: tuple[str, ...], imported: list[str]) -> bool:
    top = imported[0]
    if importer[0] == "services":
        if top in ("infra", "scripts"):
            return True
        role, other = importer[1], imported[1] if top == "services" and len(imported) > 1 else None
        if role == "common":
            return other not in (None, "common")
        return other in ROLES - {role, "kv"}
    if importer[0] == "infra":
        return top == "scripts" or (top == "services" and imported[1:3] != ["common", "settings"])
    return False


FILES = sorted(
    path.relative_to(ROOT) for top in ("infra", "services", "scripts") for path in (ROOT / top).rglob("*.py")
)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_arrows(path: Path) -> None:
    wrong = [name for name in _imports(ROOT / path) if _forbidden(path.parts, name.split("."))]
    assert not wrong, f"{path} must not import {', '.join(wrong)}"


def test_the_rule_itself() -> None:
    assert _forbidden(("services", "gateway", "app.py"), ["services", "scheduler"])
    assert _forbidden(("services", "common", "logs.py"), ["services", "kv"])
    assert _forbidden(("infra", "local", "roles.py"), ["services", "common", "wire"])
    assert not _forbidden(("services", "worker", "app.py"), ["services", "kv", "lease"])
    assert not _forbidden(("infra", "local", "roles.py"), ["services", "common", "settings", "WorkerSettings"])
