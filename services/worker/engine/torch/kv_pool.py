"""The KV memory: one buffer, block after block, so that a block is one run of bytes that can be sent as it is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from services.common.wire import Layout
from services.worker.engine.torch.layout import block_bytes


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

    def gather(self, halves: Tensor) -> Tensor:
        """Blocks of one layer side by side: [2, n * block_size, kv_heads, head_dim] from halves [2 * n].

        The memory is reused by the next call.
        """
        size = halves.shape[0] * self._halves.shape[1]
        if self._scratch.shape[0] < size:
            self._scratch = torch.empty(1 << (size - 1).bit_length(), dtype=self._scratch.dtype)
        out = self._scratch[:size].view(halves.shape[0], -1)
        torch.index_select(self._halves, 0, halves, out=out)
        return out.view(2, -1, self.layout.kv_heads, self.layout.head_dim)

    def scrub(self, blocks: Sequence[int]) -> None:
        """Zero blocks that may hold anything: attention masks what it doesn't read, but a NaN shines through a mask."""
        self._blocks[list(blocks)] = 0

    def release(self) -> None:
        """Let go of the buffer, so that its owner can unmap it."""
        nothing = torch.empty(0)
        self._tokens = self._halves = self._blocks = self._scratch = nothing
