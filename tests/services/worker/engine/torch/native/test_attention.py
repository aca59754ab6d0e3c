"""The compiled attention equals torch's, for every layout that it takes."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch.nn import functional

from services.common.wire import Layout
from services.worker.engine.torch.native import attention
from services.worker.engine.torch.native.attention import Singles

LENGTHS = [1, 15, 16, 17, 40, 5]
BLOCK, LAYERS, BLOCKS = 16, 3, 24


def _pool(layout: Layout, generator: torch.Generator) -> torch.Tensor:
    shape = (BLOCKS, LAYERS, 2, BLOCK, layout.kv_heads, layout.head_dim)
    return torch.randn(shape, generator=generator).to(getattr(torch, layout.dtype))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 1e-2)])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (8, 2, 64), (8, 1, 128), (4, 4, 48)])
@pytest.mark.parametrize("threads", [1, 3])
def test_equals_torch(
    library: ctypes.CDLL, dtype: str, tolerance: float, heads: int, kv_heads: int, dim: int, threads: int
) -> None:
    layout = Layout(dtype, BLOCK, LAYERS, kv_heads, dim)
    generator = torch.Generator().manual_seed(heads * dim)
    pool = _pool(layout, generator)
    compiled = attention.load(library, layout, pool, heads, threads)
    assert compiled is not None
    ids = torch.randperm(BLOCKS, generator=generator).tolist()
    table = torch.zeros(len(LENGTHS), 3, dtype=torch.int32)
    for row, length in enumerate(LENGTHS):
        for block in range(-(-length // BLOCK)):
            table[row, block] = ids.pop()
    query = torch.randn(len(LENGTHS), heads, dim, generator=generator).to(pool.dtype)
    for layer in range(LAYERS):
        singles = Singles(table, torch.tensor(LENGTHS, dtype=torch.int32))
        got = compiled.attend(query, layer, singles, dim**-0.5)
        for row, length in enumerate(LENGTHS):
            past = pool[table[row].long(), layer].float().transpose(0, 1).reshape(2, -1, kv_heads, dim)[:, :length]
            keys, values = past.transpose(1, 2).unsqueeze(1)
            exact = functional.scaled_dot_product_attention(
                query[row].float()[None, :, None], keys, values, enable_gqa=True
            )
            assert (exact[0, :, 0] - got[row].float()).abs().max() < tolerance, (layer, length)
    compiled.release()


def test_what_the_source_has_no_room_for_is_left_to_torch(library: ctypes.CDLL) -> None:
    layout = Layout("float32", BLOCK, LAYERS, 1, 512)
    assert attention.load(library, layout, torch.empty(0), 8, 1) is None


def test_without_compiled_code_torch_serves() -> None:
    layout = Layout("float32", BLOCK, LAYERS, 3, 64)
    assert attention.load(None, layout, _pool(layout, torch.Generator()), 9, 1) is None
