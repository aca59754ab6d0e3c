"""Engines on the real model, and what transformers answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from infra.paths import cache_dir
from services.worker.engine.torch.config import EngineConfig
from tests.e2e.reference import Reference
from tests.services.worker.engine.torch.driver import Driver


@pytest.fixture(scope="session")
def reference(model_path: Path) -> Reference:
    torch.set_num_threads(1)
    return Reference.load(model_path)


NATIVE = cache_dir(os.environ) / "native"


@pytest.fixture(scope="module")
def driver(model_path: Path, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """With the compiled attention unless a test asks for "torch"."""
    folder = None if getattr(request, "param", "native") == "torch" else NATIVE
    config = EngineConfig(
        model_path, num_blocks=96, max_model_len=2048, max_running=16, max_waiting=8, native_folder=folder
    )
    driver = Driver(config)
    yield driver
    driver.close()
