"""The packages of an image are those that the tests ran with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import lock

FOLDER = Path(__file__).resolve().parents[2] / "requirements"
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
ROLES = [each.name for each in lock.ROLES]


def pins(name: str) -> set[tuple[str, str]]:
    return set(PIN.findall((FOLDER / f"{name}.txt").read_text()))


@pytest.mark.parametrize("role", ROLES)
def test_versions_are_those_of_the_checkout(role: str) -> None:
    assert pins(role)
    assert pins(role) <= pins("dev")


@pytest.mark.parametrize("role", ROLES)
def test_every_package_has_hashes_and_no_address(role: str) -> None:
    text = (FOLDER / f"{role}.txt").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) == len(PIN.findall(text))
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text


def test_an_image_has_no_more_than_its_role_needs() -> None:
    names = {role: {name for name, _ in pins(role)} for role in ROLES}
    assert names["scheduler"] == names["kv"]
    assert names["gateway"] - names["kv"] == {"jinja2", "markupsafe", "tokenizers"}
    assert not {name for name in names["worker"] if name.startswith(("nvidia-", "triton"))} - {"nvidia-cuda-runtime"}


def test_packages_for_no_platform_are_left_out() -> None:
    text = "one==1 \\\n    --hash=sha256:a\ntwo==2 ; sys_platform == 'never' \\\n    --hash=sha256:b\nthree==3\n"
    assert lock.reachable(text) == "one==1 \\\n    --hash=sha256:a\nthree==3\n"
