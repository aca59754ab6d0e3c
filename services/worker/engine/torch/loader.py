"""Loads a model's weights and packs them for the code that multiplies by them."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from services.worker.engine.torch import attention
from services.worker.engine.torch.native.linear import NativeLinear

_ROWS_HINT = 64  # the packing is made for so many rows and serves any number


class PackedLinear(nn.Module):
    """A linear layer whose weight oneDNN has reordered once: about twice as fast as nn.Linear in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().contiguous()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """[…, in_features] to […, out_features]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return out


def load(model_path: Path, dtype: str, library: ctypes.CDLL | None, threads: int) -> Any:
    """The causal language model of a folder, its attention ours, its linear layers packed; in eval mode.

    With a `library` (see native.compiler) float32 layers compute a few rows in compiled code, on `threads` threads.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model: Any = AutoModelForCausalLM.from_pretrained(
        model_path, dtype=getattr(torch, dtype), attn_implementation=attention.NAME, local_files_only=True
    )
    model.eval().requires_grad_(False)

    def pack(linear: nn.Linear) -> nn.Module:
        many = PackedLinear(linear) if _packs(dtype) else linear
        return many if library is None or dtype != "float32" else NativeLinear(library, linear, many, threads)

    _replace(model, pack)
    return model


def _packs(dtype: str) -> bool:
    """Whether oneDNN computes in this dtype on this CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype == "float32" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _replace(module: nn.Module, pack: Callable[[nn.Linear], nn.Module]) -> None:
    """Replace each linear layer; its own weight is freed unless it is tied to another's (the embeddings')."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, pack(child))
        else:
            _replace(child, pack)


def eos_token_ids(model_path: Path) -> frozenset[int]:
    """The model's end-of-text tokens: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        path = model_path / name
        eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
        if eos is not None:
            return frozenset([eos] if isinstance(eos, int) else eos)
    return frozenset()
