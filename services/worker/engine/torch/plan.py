"""Which tokens the next step computes: pure."""

from __future__ import annotations

from collections.abc import Iterable

from services.worker.engine.torch.batch import Span
from services.worker.engine.torch.sequence import Sequence


def plan(running: Iterable[Sequence], budget: int) -> list[Span]:
    """Every sequence that lacks one token, then prompts in order of arrival until `budget` tokens are full.

    The budget exceeds the number of sequences (EngineConfig), so a prompt always advances.
    """
    spans = []
    prompts = []
    for sequence in running:
        if sequence.pending == 1:
            spans.append(Span(sequence, 1))
        else:
            prompts.append(sequence)
    left = budget - len(spans)
    for sequence in prompts:
        if left <= 0:
            break
        count = min(sequence.pending, left)
        spans.append(Span(sequence, count))
        left -= count
    return spans
