"""How a model's KV lies in memory, read from config.json alone: a pool can be sized before torch is imported."""

from __future__ import annotations

import json
from pathlib import Path

from services.common.wire import Layout

_ITEM_BYTES = {"float32": 4, "bfloat16": 2}


def layout_of(model_path: Path, dtype: str, block_size: int) -> Layout:
    """The layout of a model folder's KV; raises ValueError for a dtype that the engine doesn't know."""
    if dtype not in _ITEM_BYTES:
        raise ValueError(f"dtype {dtype!r}: must be one of {', '.join(_ITEM_BYTES)}")
    config = json.loads((model_path / "config.json").read_text(encoding="utf-8"))
    heads = config["num_attention_heads"]
    return Layout(
        dtype=dtype,
        block_size=block_size,
        layers=config["num_hidden_layers"],
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
    )


def block_bytes(layout: Layout) -> int:
    """Bytes of one block: keys and values of `block_size` tokens in all layers."""
    return 2 * layout.layers * layout.block_size * layout.kv_heads * layout.head_dim * _ITEM_BYTES[layout.dtype]
