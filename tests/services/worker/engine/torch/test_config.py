"""Values that contradict each other are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.worker.engine.torch.config import EngineConfig
from services.worker.engine.torch.engine import TorchEngine


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_blocks", 0), ("threads", 0), ("block_size", 0), ("max_waiting", -1), ("prefill_max_batch_tokens", 32)],
)
def test_refused_by_name(field: str, value: int) -> None:
    values: dict[str, Any] = {"num_blocks": 1, field: value}
    with pytest.raises(ValueError, match=field):
        EngineConfig(Path("model"), **values)


def test_longer_than_the_model(model_path: Path) -> None:
    with pytest.raises(ValueError, match="max_model_len is 9000: the model takes at most 8192"):
        TorchEngine(EngineConfig(model_path, num_blocks=1, max_model_len=9000, max_running=1))


def test_memory_of_the_wrong_size(model_path: Path) -> None:
    with pytest.raises(ValueError, match="the KV buffer has 64 bytes"):
        TorchEngine(EngineConfig(model_path, num_blocks=1, max_running=1), memoryview(bytearray(64)))
