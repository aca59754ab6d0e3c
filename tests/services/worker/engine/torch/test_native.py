"""The compiled attention equals torch's, for every layout that it takes, and steps aside where it can't be had."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from services.common.wire import Layout
from services.worker.engine.torch import native
from services.worker.engine.torch.native import Singles

LENGTHS = [1, 15, 16, 17, 40, 5]
BLOCK, LAYERS, BLOCKS = 16, 3, 24


def _pool(layout: Layout, generator: torch.Generator) -> torch.Tensor:
    shape = (BLOCKS, LAYERS, 2, BLOCK, layout.kv_heads, layout.head_dim)
    return torch.randn(shape, generator=generator).to(getattr(torch, layout.dtype))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native")


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("bfloat16", 1e-2)])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (8, 2, 64), (8, 1, 128), (4, 4, 48)])
@pytest.mark.parametrize("threads", [1, 3])
def test_equals_torch(
    folder: Path, dtype: str, tolerance: float, heads: int, kv_heads: int, dim: int, threads: int
) -> None:
    layout = Layout(dtype, BLOCK, LAYERS, kv_heads, dim)
    generator = torch.Generator().manual_seed(heads * dim)
    pool = _pool(layout, generator)
    compiled = native.load(folder, layout, pool, heads, threads)
    assert compiled is not None, "a C compiler is part of what this project needs"
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


def test_compiled_once(folder: Path) -> None:
    layout = Layout("float32", BLOCK, LAYERS, 3, 64)
    pool = _pool(layout, torch.Generator())
    assert native.load(folder, layout, pool, 9, 1)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(before) == 1
    assert native.load(folder, layout, pool, 9, 1)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_torch_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setenv("CC", compiler)
    layout = Layout("float32", BLOCK, LAYERS, 3, 64)
    assert native.load(tmp_path, layout, _pool(layout, torch.Generator()), 9, 1) is None


def test_what_the_source_has_no_room_for_is_left_to_torch(folder: Path) -> None:
    layout = Layout("float32", BLOCK, LAYERS, 1, 512)
    assert native.load(folder, layout, torch.empty(0), 8, 1) is None
