"""Terraform's AWS provider, started once for all tests of the aws target."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.infra.aws.terraform import NOT_FOUND, Provider, find_provider


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    binary = find_provider(os.environ)
    if binary is None:
        pytest.skip(NOT_FOUND)
    running = Provider(binary)
    yield running
    running.stop()
