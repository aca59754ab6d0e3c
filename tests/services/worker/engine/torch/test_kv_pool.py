"""A block is one run of bytes, and holds what the layout says it holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from services.common.wire import Layout
from services.worker.engine.torch.kv_pool import KvPool
from services.worker.engine.torch.layout import block_bytes, layout_of

LAYOUT = Layout(dtype="float32", block_size=4, layers=3, kv_heads=2, head_dim=5)


def test_layout_of_the_model(model_path: Path) -> None:
    layout = layout_of(model_path, "bfloat16", 64)
    assert layout == Layout(dtype="bfloat16", block_size=64, layers=30, kv_heads=3, head_dim=64)
    assert block_bytes(layout) == 64 * 30 * 2 * 3 * 64 * 2
    with pytest.raises(ValueError, match="float16"):
        layout_of(model_path, "float16", 64)


def test_layout_without_the_optional_fields(tmp_path: Path) -> None:
    config = {"num_attention_heads": 8, "hidden_size": 64, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert layout_of(tmp_path, "float32", 16) == Layout("float32", 16, layers=2, kv_heads=8, head_dim=8)


def test_write_and_gather() -> None:
    memory = bytearray(6 * block_bytes(LAYOUT))
    pool = KvPool(LAYOUT, 6, memoryview(memory))
    keys, values = torch.randn(3, 7, 2, 5), torch.randn(3, 7, 2, 5)
    table = torch.tensor([4, 1])
    position = torch.arange(7)
    slots = pool.slots(table[position // 4], position % 4)
    for layer in range(3):
        pool.write(slots[layer], keys[layer], values[layer])
    for layer in range(3):
        window = pool.window(2, 7)
        pool.gather(pool.halves(table)[layer], window)
        assert torch.equal(window.keys[0].transpose(0, 1), keys[layer])
        assert torch.equal(window.values[0].transpose(0, 1), values[layer])
    blocks = torch.frombuffer(memory, dtype=torch.float32).view(6, 3, 2, 4, 2, 5)
    assert torch.equal(blocks[4, :, 0], keys[:, :4])
    assert torch.equal(blocks[1, :, 1, :3], values[:, 4:])
    assert not blocks[[0, 2, 3, 5]].any()
    pool.scrub([4])
    assert not blocks[4].any()
    assert blocks[1].any()
