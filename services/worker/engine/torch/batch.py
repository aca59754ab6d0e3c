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
class Rows:
    """Where a span lies among the tokens of its step, and what its tokens look back on.

    The tokens at `start` to `stop` are the last ones of a sequence of `length` tokens. `halves` [layers, 2 * blocks]
    are the rows of the pool that hold them all; None where the sequence begins with this span.
    `mask` [stop - start, length] is added to the scores; None where plain causality or a single token needs none.
    """

    start: int
    stop: int
    length: int
    halves: Tensor | None
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: T tokens of several sequences in one row."""

    pool: KvPool
    spans: list[Span]
    rows: list[Rows]  # of each span
    token_ids: Tensor  # [1, T]
    positions: Tensor  # [1, T]
    slots: Tensor  # [layers, 2, T]
    last_tokens: Tensor  # indices into T of the tokens that the next ones follow, in the order of the spans


def build(spans: Seq[Span], pool: KvPool) -> Batch:
    """Lay out a step, its tokens in the order of the spans."""
    size = pool.layout.block_size
    ids: list[int] = []
    positions: list[int] = []
    blocks: list[int] = []
    last: list[int] = []
    rows: list[Rows] = []
    for span in spans:
        sequence, begin = span.sequence, span.sequence.computed
        end = begin + span.count
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
        rows=rows,
        token_ids=torch.tensor(ids)[None],
        positions=at[None],
        slots=pool.slots(torch.tensor(blocks), at % size),
        last_tokens=torch.tensor(last, dtype=torch.int64),
    )


def _rows(sequence: Sequence, start: int, begin: int, end: int, pool: KvPool) -> Rows:
    stop = start + end - begin
    if begin == 0:
        return Rows(start, stop, end, None, None)
    blocks = torch.tensor(sequence.blocks[: -(-end // pool.layout.block_size)])
    return Rows(start, stop, end, pool.halves(blocks), None if end - begin == 1 else _causal(begin, end, pool))


def _causal(begin: int, end: int, pool: KvPool) -> Tensor:
    future = torch.arange(end) > torch.arange(begin, end)[:, None]
    return torch.zeros(future.shape, dtype=getattr(torch, pool.layout.dtype)).masked_fill_(future, float("-inf"))
