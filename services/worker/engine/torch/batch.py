"""What one step computes, as the tensors that every layer shares: built once a step."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from services.worker.engine.torch.kv_pool import KvPool
from services.worker.engine.torch.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Span:
    """The next `count` tokens of a sequence."""

    sequence: Sequence
    count: int

    @property
    def is_last(self) -> bool:
        """Whether it gives the next token."""
        return self.count == self.sequence.pending


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Rows `start` to `stop` of a step: sequences of similar length with one query token each."""

    start: int
    stop: int
    halves: Tensor  # [layers, 2 * rows * blocks]
    mask: Tensor  # [rows, 1, 1, blocks * block_size], added to the scores


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows `start` to `stop` of a step: consecutive tokens of one sequence, of which `length` are then known."""

    start: int
    stop: int
    length: int
    halves: Tensor | None  # [layers, 2 * blocks]; None: the sequence begins here
    mask: Tensor | None  # [stop - start, length], added to the scores


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: T tokens of several sequences in one row."""

    pool: KvPool
    spans: list[Span]  # in the order of the rows
    token_ids: Tensor  # [1, T]
    positions: Tensor  # [1, T]
    slots: Tensor  # [layers, 2, T]
    last_rows: Tensor  # rows that give a token, in the order of the spans
    groups: list[DecodeGroup]
    chunks: list[Chunk]


def build(spans: Seq[Span], pool: KvPool) -> Batch:
    """Lay out a step: rows with a single token first, the longest sequence before the others, then the chunks."""
    single = sorted((s for s in spans if s.count == 1), key=lambda s: -s.sequence.computed)
    chunked = [s for s in spans if s.count > 1]
    ordered = single + chunked
    size = pool.layout.block_size
    ids: list[int] = []
    positions: list[int] = []
    blocks: list[int] = []
    last_rows: list[int] = []
    chunks: list[Chunk] = []
    for span in ordered:
        sequence, begin = span.sequence, span.sequence.computed
        end = begin + span.count
        if span.count > 1:
            chunks.append(_chunk(sequence, len(ids), begin, end, pool))
        ids += sequence.tokens[begin:end]
        positions += range(begin, end)
        blocks += [sequence.blocks[position // size] for position in range(begin, end)]
        if span.is_last:
            last_rows.append(len(ids) - 1)
    at = torch.tensor(positions)
    return Batch(
        pool=pool,
        spans=ordered,
        token_ids=torch.tensor(ids)[None],
        positions=at[None],
        slots=pool.slots(torch.tensor(blocks), at % size),
        last_rows=torch.tensor(last_rows, dtype=torch.int64),
        groups=_groups([s.sequence for s in single], pool),
        chunks=chunks,
    )


def _chunk(sequence: Sequence, start: int, begin: int, end: int, pool: KvPool) -> Chunk:
    stop = start + end - begin
    if begin == 0:
        return Chunk(start, stop, end, None, None)
    blocks = sequence.blocks[: -(-end // pool.layout.block_size)]
    future = torch.arange(end) > torch.arange(begin, end)[:, None]
    return Chunk(start, stop, end, pool.halves(torch.tensor(blocks)), _hide(future, pool))


def _groups(sequences: list[Sequence], pool: KvPool) -> list[DecodeGroup]:
    """Cut rows, longest first, where one is less than half the longest of its group: padding costs bandwidth."""
    groups = []
    start = 0
    while start < len(sequences):
        longest = sequences[start].computed
        stop = start + 1
        while stop < len(sequences) and 2 * sequences[stop].computed + 4 * pool.layout.block_size > longest:
            stop += 1
        groups.append(_group(sequences[start:stop], start, pool))
        start = stop
    return groups


def _group(sequences: list[Sequence], start: int, pool: KvPool) -> DecodeGroup:
    size = pool.layout.block_size
    width = -(-(sequences[0].computed + 1) // size)
    # A short row is padded with its own first block: what is read there is masked.
    table = [s.blocks[: -(-(s.computed + 1) // size)] for s in sequences]
    padded = torch.tensor([row + row[:1] * (width - len(row)) for row in table])
    lengths = torch.tensor([s.computed + 1 for s in sequences])
    future = torch.arange(width * size) >= lengths[:, None]
    return DecodeGroup(start, start + len(sequences), pool.halves(padded.view(-1)), _hide(future, pool)[:, None, None])


def _hide(future: Tensor, pool: KvPool) -> Tensor:
    dtype = getattr(torch, pool.layout.dtype)
    return torch.zeros(future.shape, dtype=dtype).masked_fill_(future, float("-inf"))
