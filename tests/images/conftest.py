"""A registry and the images of this checkout, once for all tests of a session; the daemon is of tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import CACHE
from tests.toolchain.docker import base, registry
from tests.toolchain.docker.daemon import Docker
from tests.toolchain.docker.release import Release
from tests.toolchain.kubernetes.programs import prepare


@pytest.fixture(scope="session")
def registry_program() -> str:
    """The distribution registry."""
    return prepare(CACHE).program("registry")


@pytest.fixture(scope="session")
def registry_address(docker: Docker, registry_program: str) -> Iterator[str]:
    """A registry without tags, at an address that is the same in each run: docker remembers what it pushed where."""
    with registry.running(registry_program, CACHE / "docker" / "registry", "127.11.93.7:5000") as address:
        yield address


@pytest.fixture(scope="session")
def release(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A checkout with the project's files."""
    return Release.make(tmp_path_factory.mktemp("release") / "checkout", docker, base.prepare(docker))


@pytest.fixture(scope="session")
def built(docker: Docker, release: Release) -> dict[str, str]:
    """Every role's image; those of earlier runs are removed."""
    images = release.build()
    tag = images["gateway"].partition(":")[2]
    names = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
    old = [name for name in names if "diphase/" in name and not name.endswith(f":{tag}")]
    if old:
        docker("image", "rm", "--force", *old)
    return images
