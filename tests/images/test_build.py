"""What a build leaves: its labels, its user, its layers, and nothing of how this machine fetches packages."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from scripts.containers import fetching
from tests.toolchain.docker.daemon import Docker
from tests.toolchain.docker.release import Release

ROLES = ("gateway", "scheduler", "worker", "kv")
SMALL = 5_000_000  # bytes of a layer that is only our code


def config(docker: Docker, image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(docker.inspect(image)["Config"]))
    return found


def layers(docker: Docker, image: str) -> list[str]:
    root: dict[str, Any] = json.loads(json.dumps(docker.inspect(image)["RootFS"]))
    return list(root["Layers"])


@pytest.mark.parametrize("role", ROLES)
def test_an_image_says_what_it_is(role: str, docker: Docker, built: dict[str, str], release: Release) -> None:
    found = config(docker, built[role])
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in found["Labels"].items()}
    commit = release.git("rev-parse", "HEAD")
    assert labels["revision"] == commit
    assert labels["version"] == "0.1.0"
    assert labels["created"].startswith("2026-01-01T00:00:00")
    assert built[role] == f"diphase/{role}:0.1.0-{commit[:12]}"
    assert found["User"] == "10001:10001"
    assert found["Entrypoint"] == ["tini", "--", "python", "-m", f"services.{role}"]


@pytest.mark.parametrize("role", ROLES)
def test_history_and_settings_hold_no_secret(role: str, docker: Docker, built: dict[str, str]) -> None:
    history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", built[role])
    said = history + json.dumps(docker.inspect(built[role]))
    secret = [*fetching.variables(os.environ).values(), *map(str, fetching.files(os.environ).values())]
    assert not [value for value in secret if value in said]
    assert "/run/secrets" not in said


def test_secrets_are_no_files_of_an_image(docker: Docker, built: dict[str, str]) -> None:
    for role in ROLES:
        left = docker("run", "--rm", "--network", "none", "--entrypoint", "find", built[role], "/run", "-type", "f")
        assert left == ""


def test_roles_share_the_base_layer(docker: Docker, built: dict[str, str]) -> None:
    assert len({layers(docker, built[role])[0] for role in ROLES}) == 1


def test_a_change_of_code_makes_one_small_layer(docker: Docker, built: dict[str, str], release: Release) -> None:
    before = layers(docker, built["worker"])
    changed = release.folder / "services" / "common" / "changed.py"
    changed.write_text('"""Something new."""\n')
    try:
        release.commit("A change")
        images = release.build("worker")
        after = layers(docker, images["worker"])
        size = docker("history", "--human=false", "--format", "{{.Size}}", images["worker"]).split()
        docker("image", "rm", *images.values())
    finally:
        release.git("reset", "--quiet", "--hard", "HEAD~1")
    assert after[:-1] == before[:-1]
    assert after[-1] != before[-1]
    assert next(int(one) for one in size if int(one)) < SMALL


def test_a_build_that_fails_says_why(release: Release) -> None:
    lock = release.folder / "requirements" / "kv.txt"
    before = lock.read_text()
    try:
        lock.write_text(before.replace("--hash=sha256:", "--hash=sha256:0", 1))
        done = release.run("build", "--role", "kv", "--network", "host", "--base-image", release.base)
    finally:
        lock.write_text(before)
    assert done.returncode == 1
    assert "these files differ from the commit" in done.stderr
    assert "requirements/kv.txt" in done.stderr
    assert "hash" in done.stderr.lower()
    assert "Traceback" not in done.stderr
