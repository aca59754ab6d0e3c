"""Compiles attention.c for this CPU, once, and calls it; where that can't be, torch's own attention serves.

What it saves: torch's attention wants a sequence's keys side by side, so every layer of every step copies the whole KV
of every sequence out of its blocks first. The compiled loop reads the blocks where they lie.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from services.common import logs
from services.common.wire import Layout

SOURCE = Path(__file__).with_name("attention.c")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC", "-shared")
COMPILE_SECONDS = 60.0
_MAX_GROUP, _MAX_DIM = 16, 256  # as in the source
_log = logs.get()


class _Shape(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("rows", "kv_heads", "group", "dim", "block_size", "block_stride", "table_width", "scratch")
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

    def __init__(self, library: Path, layout: Layout, blocks: Tensor, threads: int) -> None:
        function = getattr(ctypes.CDLL(str(library)), f"attend_{layout.dtype}")
        function.argtypes = [*[ctypes.c_void_p] * 6, ctypes.POINTER(_Shape), ctypes.c_float, ctypes.c_void_p]
        function.restype = None
        self._function = function
        self._layout = layout
        self._blocks = blocks
        self._half = blocks.stride(2) * blocks.element_size()  # bytes from a layer's keys to its values
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="attention") if threads > 1 else None
        self._scratch = torch.empty(0)

    def attend(self, query: Tensor, layer: int, singles: Singles, scaling: float) -> Tensor:
        """query [rows, heads, head_dim], contiguous, to an equal result; the new tokens' KV is in the pool already."""
        out = torch.empty_like(query)
        parts = min(self._threads, singles.rows)
        room = query.shape[1] // self._layout.kv_heads * singles.table.shape[1] * self._layout.block_size
        if self._scratch.numel() < parts * room:
            self._scratch = torch.empty(parts * room)

        def part(index: int) -> None:
            rows = slice(singles.rows * index // parts, singles.rows * (index + 1) // parts)
            self._call(query[rows], out[rows], layer, singles, rows, scaling, self._scratch[index * room :])

        if self._pool is None or parts == 1:
            part(0)
        else:  # ctypes lets go of the GIL, so these run side by side
            list(self._pool.map(part, range(parts)))
        return out

    def _call(
        self, query: Tensor, out: Tensor, layer: int, singles: Singles, rows: slice, scaling: float, scratch: Tensor
    ) -> None:
        layout, table = self._layout, singles.table[rows]
        keys = self._blocks.data_ptr() + layer * 2 * self._half
        shape = _Shape(
            rows=len(query),
            kv_heads=layout.kv_heads,
            group=query.shape[1] // layout.kv_heads,
            dim=layout.head_dim,
            block_size=layout.block_size,
            block_stride=self._blocks.stride(0),
            table_width=table.shape[1],
            scratch=table.shape[1] * layout.block_size,
        )
        self._function(
            query.data_ptr(),
            keys,
            keys + self._half,
            table.data_ptr(),
            singles.lengths[rows].data_ptr(),
            out.data_ptr(),
            shape,
            scaling,
            scratch.data_ptr(),
        )

    def release(self) -> None:
        """Let go of the pool's memory."""
        self._blocks = torch.empty(0)
        if self._pool is not None:
            self._pool.shutdown()


def load(folder: Path | None, layout: Layout, blocks: Tensor, heads: int, threads: int) -> NativeAttention | None:
    """The compiled attention, kept in `folder`; None, with a line in the log, where it can't be had."""
    if folder is None or heads // layout.kv_heads > _MAX_GROUP or layout.head_dim > _MAX_DIM:
        return None
    try:
        return NativeAttention(_compiled(folder), layout, blocks, threads)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        _log.warning("native_attention_unavailable", reason=detail.strip()[-500:], consequence="slower decode")
        return None


def _compiled(folder: Path) -> Path:
    """The library for this source, compiler and CPU; compiles it where it is missing (about a second)."""
    compiler = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise FileNotFoundError("there is no C compiler: install gcc or clang")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    key = "\0".join([SOURCE.read_text(), " ".join(FLAGS), version, _cpu()])
    library = folder / f"attention-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}")
        command = [compiler, *FLAGS, "-o", str(partial), str(SOURCE), "-lm"]
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMPILE_SECONDS)
        partial.replace(library)  # at once: several workers may compile at the same time
    return library


def _cpu() -> str:
    """What -march=native means here."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"
