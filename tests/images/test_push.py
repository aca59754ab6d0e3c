"""Pushes to a real registry: by digest, twice the same, and never another image under a tag that is taken."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.toolchain.docker.daemon import Docker
from tests.toolchain.docker.release import Release

ROLES = ("gateway", "scheduler", "worker", "kv")


@pytest.fixture(scope="module")
def registry(registry_address: str) -> str:
    """HOST/REPO."""
    return f"{registry_address}/diphase"


@pytest.fixture(scope="module")
def pushed(release: Release, built: dict[str, str], registry: str) -> dict[str, str]:
    """Role → reference by digest, of all that was pushed."""
    assert set(built) == set(ROLES)
    record = release.push(registry)
    assert record["commit"] == release.git("rev-parse", "HEAD")
    assert (record["version"], record["registry"]) == ("0.1.0", registry)
    images: dict[str, str] = record["images"]
    return images


def tag(built: dict[str, str]) -> str:
    return built["kv"].partition(":")[2]


def digest_of(registry: str, role: str, name: str) -> str:
    """What the registry itself says."""
    host, _, repository = registry.partition("/")
    accept = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
    url = f"http://{host}/v2/{repository}/{role}/manifests/{name}"
    return httpx.head(url, headers={"Accept": accept}, trust_env=False).headers["Docker-Content-Digest"]


@pytest.mark.parametrize("role", ROLES)
def test_the_reference_is_the_registrys_digest(
    role: str, registry: str, pushed: dict[str, str], built: dict[str, str]
) -> None:
    assert re.fullmatch(rf"{registry}/{role}@sha256:[0-9a-f]{{64}}", pushed[role])
    assert pushed[role].endswith(digest_of(registry, role, tag(built)))


def test_what_was_pushed_can_be_pulled_by_digest(docker: Docker, pushed: dict[str, str]) -> None:
    docker("pull", "--quiet", pushed["kv"])
    assert docker("run", "--rm", "--network", "none", "--entrypoint", "id", pushed["kv"], "--user") == "10001"


def test_a_second_push_changes_nothing(release: Release, registry: str, pushed: dict[str, str]) -> None:
    assert release.push(registry)["images"] == pushed


def test_a_tag_never_moves(release: Release, registry: str, pushed: dict[str, str], built: dict[str, str]) -> None:
    name = built["kv"]
    identity = release.docker.inspect(name)["Id"]
    release.docker("tag", built["scheduler"], name)  # another image, as a build on another base would be
    try:
        done = release.run("push", "--registry", registry)
    finally:
        release.docker("tag", str(identity), name)
    assert done.returncode == 1
    assert f"{registry}/kv:{tag(built)} is sha256:" in done.stderr
    assert "a tag never moves" in done.stderr
    assert digest_of(registry, "kv", tag(built)) == pushed["kv"].partition("@")[2]


def test_what_another_machine_pushed_is_taken_as_it_is(
    release: Release, registry: str, pushed: dict[str, str], built: dict[str, str]
) -> None:
    name = built["kv"]
    identity = release.docker.inspect(name)["Id"]
    release.docker("image", "rm", name)
    try:
        assert release.push(registry)["images"] == pushed
    finally:
        release.docker("tag", str(identity), name)


def test_what_was_never_built_is_said(release: Release, registry: str, pushed: dict[str, str]) -> None:
    release.git("commit", "--quiet", "--allow-empty", "--message", "Not built")
    try:
        done = release.run("push", "--registry", registry)
    finally:
        release.git("reset", "--quiet", "--hard", "HEAD~1")
    assert done.returncode == 1
    assert "`diphase images build` first" in done.stderr


def test_lists_both_sides(release: Release, registry: str, pushed: dict[str, str], built: dict[str, str]) -> None:
    found = json.loads(release.images("ls", "--json", "--registry", registry))
    assert found["registry"] == registry
    listed = {image["role"]: image for image in found["images"] if image["tag"] == tag(built)}
    assert set(listed) == set(ROLES)
    for role, image in listed.items():
        assert pushed[role].endswith(f"@{image['digest']}")
        assert image["id"] == release.docker.inspect(built[role])["Id"]
        assert (image["version"], image["commit"]) == ("0.1.0", release.git("rev-parse", "HEAD"))
    table = release.images("ls")
    assert tag(built) in table


def test_a_stack_gets_the_digests(release: Release, registry: str, pushed: dict[str, str], tmp_path: Path) -> None:
    """By the real Pulumi CLI; the rest of the file stays."""
    file = release.folder / "stacks" / "Pulumi.pushed.yaml"
    file.write_text(
        "# Ours.\nconfig:\n  diphase:target: kubernetes\n  diphase:images:\n    registry: " + registry + "\n"
    )
    try:
        release.images("push", "--stack", "pushed", DIPHASE_CACHE=str(tmp_path), PULUMI_CONFIG_PASSPHRASE="")
        text = file.read_text()
    finally:
        file.unlink()
    assert "# Ours." in text
    assert all(reference in text for reference in pushed.values())
    assert "diphase:target: kubernetes" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no registry: give --registry HOST/REPO"),
        (["--registry", "https://example.invalid/x"], "without https://"),
        (["--registry", "127.0.0.1:1/x"], "cannot be reached over http"),
        (["--stack", "nowhere"], "there is no stack nowhere"),
    ],
)
def test_a_wrong_registry_is_said(arguments: list[str], said: str, release: Release, built: dict[str, str]) -> None:
    done = release.run("push", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
