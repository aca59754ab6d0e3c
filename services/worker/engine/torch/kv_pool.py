"""The KV memory: one buffer, block after block, so that a block is one run of bytes that can be sent as it is."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from services.common.wire import Layout
from services.worker.engine.torch.layout import block_bytes
from services.worker.engine.torch.native import attention
from services.worker.engine.torch.native.attention import NativeAttention, Singles


class Window(NamedTuple):
    """Tokens of one sequence side by side, in memory that the next gather overwrites."""

    raw: Tensor  # [2 * blocks, block_size * kv_heads * head_dim]
    keys: Tensor  # a view of it, [1, kv_heads, length, head_dim]
    values: Tensor


class KvPool:
    """Keys and values as [num_blocks, layers, 2, block_size, kv_heads, head_dim].

    `memory` is the buffer to use, num_blocks * block_bytes(layout) bytes, finite numbers throughout (zeros at first);
    without it the pool allocates its own.
    """

    def __init__(self, layout: Layout, num_blocks: int, memory: memoryview | None = None) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        size = num_blocks * block_bytes(layout)
        if memory is None:
            raw = torch.zeros(size, dtype=torch.uint8)
        elif memory.nbytes != size:
            raise ValueError(f"the KV buffer has {memory.nbytes} bytes; {num_blocks} blocks need {size}")
        else:
            raw = torch.frombuffer(memory, dtype=torch.uint8)
        width = layout.kv_heads * layout.head_dim
        self._tokens = raw.view(getattr(torch, layout.dtype)).view(
            -1, width
        )  # a row: one token's keys (or values) in one layer
        self._halves = self._tokens.view(
            -1, layout.block_size * width
        )  # a row: one block's keys (or values) in one layer
        self._blocks = raw.view(num_blocks, -1)
        self._scratch = torch.empty(0, dtype=self._tokens.dtype)
        self._native: NativeAttention | None = None

    def use_native(self, library: ctypes.CDLL | None, heads: int, threads: int) -> None:
        """From now on attend to single tokens by `library` (see native.compiler), if it has room for the layout."""
        layout = self.layout
        shape = (self.num_blocks, layout.layers, 2, layout.block_size, layout.kv_heads, layout.head_dim)
        self._native = attention.load(library, layout, self._tokens.view(shape), heads, threads)

    @property
    def attends(self) -> bool:
        """Whether `attend` can be called."""
        return self._native is not None

    def attend(self, query: Tensor, layer: int, singles: Singles, scaling: float) -> Tensor:
        """Attention of single tokens, without a gather; see NativeAttention."""
        assert self._native is not None
        return self._native.attend(query, layer, singles, scaling)

    def halves(self, blocks: Tensor) -> Tensor:
        """Rows for `gather`, [layers, 2 * n], of the blocks [n]: their keys, then their values."""
        layers = self.layout.layers
        inside = torch.arange(2 * layers).view(layers, 2, 1)
        return (blocks * (2 * layers) + inside).view(layers, -1)

    def slots(self, blocks: Tensor, offsets: Tensor) -> Tensor:
        """Rows for `write`, [layers, 2, n], of the tokens at `offsets` [n] within `blocks` [n]."""
        return self.halves(blocks).view(self.layout.layers, 2, -1) * self.layout.block_size + offsets

    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store n tokens of one layer: slots [2, n], keys and values [n, kv_heads, head_dim]."""
        self._tokens.index_copy_(0, slots[0], keys.reshape(keys.shape[0], -1))
        self._tokens.index_copy_(0, slots[1], values.reshape(values.shape[0], -1))

    def window(self, num_blocks: int, length: int) -> Window:
        """Room for the first `length` tokens of `num_blocks` blocks of one layer; all windows share their memory."""
        rows, width = 2 * num_blocks, self._halves.shape[1]
        if self._scratch.shape[0] < rows * width:
            self._scratch = torch.empty(1 << (rows * width - 1).bit_length(), dtype=self._scratch.dtype)
        raw = self._scratch[: rows * width].view(rows, width)
        both = raw.view(2, 1, -1, self.layout.kv_heads, self.layout.head_dim)[:, :, :length].transpose(2, 3)
        return Window(raw, both[0], both[1])

    def gather(self, halves: Tensor, window: Window) -> None:
        """Copy blocks of one layer, given by halves [2 * n], into a window of n blocks."""
        torch.index_select(self._halves, 0, halves, out=window.raw)

    def scrub(self, blocks: Sequence[int]) -> None:
        """Zero blocks that may hold anything: attention masks what it doesn't read, but a NaN shines through a mask."""
        self._blocks[list(blocks)] = 0

    def release(self) -> None:
        """Let go of the buffer, so that its owner can unmap it."""
        if self._native is not None:
            self._native.release()
            self._native = None
        nothing = torch.empty(0)
        self._tokens = self._halves = self._blocks = self._scratch = nothing
