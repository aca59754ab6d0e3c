"""What one step computes, as the tensors that every layer shares: built once a step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from services.worker.engine.torch.kv_pool import KvPool, Window
from services.worker.engine.torch.native.attention import Singles
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
class Past:
    """The earlier tokens of a sequence, in the pool: what a span looks back on besides itself."""

    halves: tuple[Tensor, ...]  # of each layer: the rows of the pool that hold all its tokens, the span's included
    window: Window  # where they are gathered, layer after layer
    mask: Tensor | None  # [span, tokens], added to the scores; None for a single token, which sees all


@dataclass(frozen=True, slots=True)
class Rows:
    """Where a span lies among the tokens of its step."""

    start: int
    stop: int
    past: Past | None  # None: the sequence begins with this span


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: T tokens of several sequences in one row."""

    pool: KvPool
    spans: list[Span]
    singles: Singles | None  # the first spans, where the pool can attend to them by itself
    rows: list[Rows]  # of each other span
    token_ids: Tensor  # [T]
    positions: Tensor  # [T]
    slots: tuple[Tensor, ...]  # of each layer, [2, T]
    last_tokens: Tensor  # indices into T of the tokens that the next ones follow, in the order of the spans


def build(spans: Seq[Span], pool: KvPool) -> Batch:
    """Lay out a step, its tokens in the order of the spans."""
    size = pool.layout.block_size
    ids: list[int] = []
    positions: list[int] = []
    blocks: list[int] = []
    last: list[int] = []
    rows: list[Rows] = []
    alone = _leading_singles(spans) if pool.attends else []
    for index, span in enumerate(spans):
        sequence, begin = span.sequence, span.sequence.computed
        end = begin + span.count
        if index >= len(alone):
            rows.append(_rows(sequence, len(ids), begin, end, pool))
        ids += sequence.tokens[begin:end]
        positions += range(begin, end)
        blocks += [sequence.blocks[position // size] for position in range(begin, end)]
        if span.is_last:
            last.append(len(ids) - 1)
    at = torch.tensor(positions)
    return Batch(
        pool=pool,
        spans=list(spans),
        singles=_singles(alone, size) if alone else None,
        rows=rows,
        token_ids=torch.tensor(ids),
        positions=at,
        slots=pool.slots(torch.tensor(blocks), at % size).unbind(0),
        last_tokens=torch.tensor(last, dtype=torch.int64),
    )


def _leading_singles(spans: Seq[Span]) -> list[Sequence]:
    return [span.sequence for span in itertools.takewhile(lambda span: span.count == 1, spans)]


def _singles(sequences: list[Sequence], size: int) -> Singles:
    lengths = [sequence.computed + 1 for sequence in sequences]
    width = -(-max(lengths) // size)
    table = [(sequence.blocks + [0] * width)[:width] for sequence in sequences]
    return Singles(torch.tensor(table, dtype=torch.int32), torch.tensor(lengths, dtype=torch.int32))


def _rows(sequence: Sequence, start: int, begin: int, end: int, pool: KvPool) -> Rows:
    stop = start + end - begin
    if begin == 0:
        return Rows(start, stop, None)
    blocks = sequence.blocks[: -(-end // pool.layout.block_size)]
    halves = pool.halves(torch.tensor(blocks)).unbind(0)
    mask = None if end - begin == 1 else _causal(begin, end, pool)
    return Rows(start, stop, Past(halves, pool.window(len(blocks), end), mask))


def _causal(begin: int, end: int, pool: KvPool) -> Tensor:
    future = torch.arange(end) > torch.arange(begin, end)[:, None]
    return torch.zeros(future.shape, dtype=getattr(torch, pool.layout.dtype)).masked_fill_(future, float("-inf"))
