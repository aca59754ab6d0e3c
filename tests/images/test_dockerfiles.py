"""Every Dockerfile keeps the rules that make an image safe to run and quick to build again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "images"
ROLES = ("gateway", "scheduler", "worker", "kv")
FILES = {path.name.removesuffix(".Dockerfile"): path for path in FOLDER.glob("*.Dockerfile")}
SECRET = re.compile(r"(?i)passw|token|secret|api_?key|index_url|proxy")


class Instruction(NamedTuple):
    word: str
    rest: str


def parse(path: Path) -> list[Instruction]:
    """The instructions of a Dockerfile, continued lines joined and comments left out."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [Instruction(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines()]


def of(path: Path, word: str) -> list[str]:
    return [rest for found, rest in parse(path) if found == word]


def last_stage(path: Path) -> list[Instruction]:
    found = parse(path)
    return found[max(index for index, each in enumerate(found) if each.word == "FROM") :]


def test_a_file_for_each_role_and_the_base() -> None:
    assert set(FILES) == {*ROLES, "base"}


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_nothing_is_built_on_a_tag_that_moves(path: Path) -> None:
    stages = {rest.split()[-1] for rest in of(path, "FROM") if " AS " in rest}
    arguments = {name: default for name, _, default in (rest.partition("=") for rest in of(path, "ARG"))}
    for rest in of(path, "FROM"):
        image = rest.split()[0]
        if image in stages or image == "scratch":
            continue
        found = re.fullmatch(r"\$\{(\w+)\}", image)
        assert found, f"{image} is not given by an argument"
        # Without a default the build must be told; with one it is a digest.
        default = arguments[found[1]]
        assert default == "" or re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", default)
    assert ":latest" not in path.read_text()


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_runs_as_the_fixed_user(path: Path) -> None:
    users = [rest for word, rest in last_stage(path) if word == "USER"]
    assert users == ["10001:10001"]


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_what_fetches_has_secrets_as_mounts_and_no_other_way(path: Path) -> None:
    for rest in of(path, "RUN"):
        if re.search(r"(?<![\w/])fetch ", rest):
            assert "--mount=type=secret,id=ca" in rest
            assert "--mount=type=secret,id=environ" in rest
    for word in ("ARG", "ENV"):
        for rest in of(path, word):
            assert not SECRET.search(rest), f"{word} {rest} would be in the image's history"
    assert not of(path, "ADD"), "COPY copies, ADD fetches and unpacks"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_what_its_image_starts(role: str) -> None:
    stage = last_stage(FILES[role])
    assert [rest for word, rest in stage if word == "ENTRYPOINT"] == [
        f'["tini", "--", "python", "-m", "services.{role}"]'
    ]
    assert stage[0].rest == "${BASE}"


@pytest.mark.parametrize("role", ROLES)
def test_code_comes_last_and_alone(role: str) -> None:
    copies = [rest.split()[0] for word, rest in last_stage(FILES[role]) if word == "COPY"]
    assert copies == ["--from=packages", "--from=code"], "a change of code must leave the layer of packages as it is"
    assert not [rest for word, rest in last_stage(FILES[role]) if word == "RUN"]


@pytest.mark.parametrize("role", ROLES)
def test_says_what_it_is(role: str) -> None:
    (labels,) = [rest for word, rest in last_stage(FILES[role]) if word == "LABEL"]
    for name, value in (("version", "VERSION"), ("revision", "COMMIT"), ("created", "CREATED")):
        assert f'org.opencontainers.image.{name}="${{{value}}}"' in labels
    assert "org.opencontainers.image.title=" in labels


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_its_own_packages_and_code(role: str) -> None:
    assert f"requirements/{role}.txt" in FILES[role].read_text()
    copied = {rest.split()[0] for rest in of(FILES[role], "COPY") if rest.startswith("services/")}
    wholes = {"services/__init__.py", "services/common", "services/kv", f"services/{role}"}
    assert wholes <= copied
    assert all(path.startswith(f"services/{role}/") for path in copied - wholes)


def test_the_base_has_a_health_check() -> None:
    (check,) = of(FILES["base"], "HEALTHCHECK")
    assert "/opt/health.py" in check
