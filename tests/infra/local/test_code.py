"""A role's digest follows the code that the role consists of, and no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra.local import code


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "services"
    shutil.copytree(code.SERVICES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "SERVICES", copy)
    return copy


@pytest.mark.parametrize(
    ("changed", "roles"),
    [
        ("common/wire.py", {"gateway", "scheduler", "worker", "kv"}),
        ("scheduler/core.py", {"scheduler"}),
        ("worker/engine/torch/step.py", {"worker"}),
        ("worker/engine/torch/native/linear.c", {"worker"}),
        ("kv/lease.py", {"gateway", "scheduler", "worker", "kv"}),
    ],
)
def test_a_change_shows_in_the_roles_that_have_it(services: Path, changed: str, roles: set[str]) -> None:
    packages = ("gateway", "scheduler", "worker", "kv")
    before = {package: code.digest.__wrapped__(package) for package in packages}
    with (services / changed).open("a") as file:
        file.write("# changed\n")
    assert {package for package in packages if code.digest.__wrapped__(package) != before[package]} == roles


def test_the_installed_code_is_digested() -> None:
    assert len({code.digest(package) for package in ("gateway", "scheduler", "worker", "kv")}) == 4
