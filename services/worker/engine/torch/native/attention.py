"""Attention of single tokens by attention.c; where that can't be, torch's own attention serves.

What it saves: torch's attention wants a sequence's keys side by side, so every layer of every step copies the whole KV
of every sequence out of its blocks first. The compiled loop reads the blocks where they lie.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.wire import Layout

_MAX_GROUP, _MAX_DIM = 16, 256  # as in the source


class _Shape(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            *("rows", "kv_heads", "group", "dim"),
            *("block_size", "block_stride", "table_width", "scratch", "threads"),
        )
    )


@dataclass(frozen=True, slots=True)
class Singles:
    """The sequences of a step that compute one token: they are its first rows."""

    table: Tensor  # int32 [rows, blocks]: each sequence's blocks, then anything
    lengths: Tensor  # int32 [rows]: tokens to attend to, the new one included

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.lengths)


class NativeAttention:
    """Attention of single tokens over one pool. `blocks` is [num_blocks, layers, 2, block_size, kv_heads, head_dim]."""

    def __init__(self, library: ctypes.CDLL, layout: Layout, blocks: Tensor, threads: int) -> None:
        self._function = getattr(library, f"attend_{layout.dtype}")
        self._function.argtypes = [*[ctypes.c_void_p] * 6, ctypes.POINTER(_Shape), ctypes.c_float, ctypes.c_void_p]
        self._function.restype = None
        self._layout = layout
        self._blocks = blocks
        self._half = blocks.stride(2) * blocks.element_size()  # bytes from a layer's keys to its values
        self._threads = threads
        self._scratch = torch.empty(0)

    def attend(self, query: Tensor, layer: int, singles: Singles, scaling: float) -> Tensor:
        """query [rows, heads, head_dim], contiguous, to an equal result; the new tokens' KV is in the pool already."""
        layout, blocks = self._layout, singles.table.shape[1]
        group, longest = query.shape[1] // layout.kv_heads, blocks * layout.block_size
        if self._scratch.numel() < self._threads * group * longest:
            self._scratch = torch.empty(self._threads * group * longest)
        shape = _Shape(
            rows=len(query),
            kv_heads=layout.kv_heads,
            group=group,
            dim=layout.head_dim,
            block_size=layout.block_size,
            block_stride=self._blocks.stride(0),
            table_width=blocks,
            scratch=longest,
            threads=self._threads,
        )
        keys = self._blocks.data_ptr() + layer * 2 * self._half
        out = torch.empty_like(query)
        self._function(
            query.data_ptr(),
            keys,
            keys + self._half,
            singles.table.data_ptr(),
            singles.lengths.data_ptr(),
            out.data_ptr(),
            shape,
            scaling,
            self._scratch.data_ptr(),
        )
        return out

    def release(self) -> None:
        """Let go of the pool's memory."""
        self._blocks = torch.empty(0)


def load(
    library: ctypes.CDLL | None, layout: Layout, blocks: Tensor, heads: int, threads: int
) -> NativeAttention | None:
    """The compiled attention; None without a library, or for a layout that the source has no room for."""
    if library is None or heads // layout.kv_heads > _MAX_GROUP or layout.head_dim > _MAX_DIM:
        return None
    return NativeAttention(library, layout, blocks, threads)
