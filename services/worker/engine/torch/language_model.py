"""What the engine asks of a model, whoever's code computes it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from services.worker.engine.torch.batch import Batch


class LanguageModel(Protocol):
    """A causal language model whose attention reads and writes the paged KV pool."""

    @property
    def heads(self) -> int:
        """Query heads of a layer."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""

    @property
    def max_positions(self) -> int:
        """The most tokens of a sequence."""

    def logits(self, batch: Batch, rows: Tensor) -> Tensor:
        """Write the batch's KV into its pool; the logits [len(rows), vocab_size] of those of its T tokens."""
