"""Any model that transformers has code for, with our attention and our linear layers in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from services.worker.engine.torch.attention import attend
from services.worker.engine.torch.batch import Batch
from services.worker.engine.torch.linears import Linear, Linears

NAME = "diphase_paged"


class Generic:
    """Implements LanguageModel."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def heads(self) -> int:
        """Query heads of a layer."""
        heads: int = self._model.config.num_attention_heads
        return heads

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""
        size: int = self._model.config.vocab_size
        return size

    @property
    def max_positions(self) -> int:
        """The most tokens of a sequence."""
        longest: int = self._model.config.max_position_embeddings
        return longest

    def logits(self, batch: Batch, rows: Tensor) -> Tensor:
        """See LanguageModel."""
        out = self._model(
            input_ids=batch.token_ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=rows,
            batch=batch,
        )
        logits: Tensor = out.logits[0]
        return logits


class Replaced(nn.Module):
    """A linear layer of ours where the model's code has one of torch's."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self._linear = linear

    def forward(self, x: Tensor) -> Tensor:
        """[…, in_features] to […, out_features]."""
        return self._linear(x)


def load(folder: Path, linears: Linears) -> Generic:
    """The model of a folder, in eval mode."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=linears.dtype, attn_implementation=NAME, local_files_only=True
    )
    model.eval().requires_grad_(False)
    _replace(model, lambda linear: Replaced(linears.pack(linear.weight.detach(), _detached(linear.bias))))
    return Generic(model)


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _replace(module: nn.Module, pack: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace each linear layer; its own weight is freed unless it is tied to another's (the embeddings')."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, pack(child))
        else:
            _replace(child, pack)


def paged_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    batch: Batch,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As transformers calls it: query [1, heads, T, head_dim], key and value [1, kv_heads, T, head_dim].

    Raises NotImplementedError for what a model asks of attention beyond `attend`.
    """
    unknown = [name for name in ("sliding_window", "softcap", "s_aux") if kwargs.get(name) is not None]
    if unknown:
        raise NotImplementedError(f"this engine's attention has no {', '.join(unknown)}, which the model uses")
    layer: int = module.layer_idx  # type: ignore[assignment]
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    return attend(batch, layer, query, key, value, scaling)[None], None


AttentionInterface.register(NAME, paged_attention)
