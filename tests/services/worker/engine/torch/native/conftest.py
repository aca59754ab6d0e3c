"""The compiled code, kept where every run of the tests finds it."""

from __future__ import annotations

import ctypes
import os

import pytest

from infra.paths import cache_dir
from services.worker.engine.torch.native import compiler


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    loaded = compiler.load(cache_dir(os.environ) / "native")
    assert loaded is not None, "a C compiler is part of what this project needs"
    return loaded
