"""Engines on the real model, and what transformers answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from services.worker.engine.torch.config import EngineConfig
from tests.e2e.reference import Reference
from tests.services.worker.engine.torch.driver import Driver


@pytest.fixture(scope="session")
def reference(model_path: Path) -> Reference:
    torch.set_num_threads(1)
    return Reference.load(model_path)


@pytest.fixture(scope="module")
def driver(model_path: Path) -> Iterator[Driver]:
    driver = Driver(EngineConfig(model_path, num_blocks=96, max_model_len=2048, max_running=16, max_waiting=8))
    yield driver
    driver.close()
