"""Picks the code that computes a model, and loads its weights into it."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import torch

from services.worker.engine.torch import llama
from services.worker.engine.torch.language_model import LanguageModel
from services.worker.engine.torch.linears import Linears


def load(folder: Path, dtype: str, library: ctypes.CDLL | None, threads: int) -> LanguageModel:
    """The causal language model of a folder: in our own code if it is built like Llama, else in transformers'."""
    linears = Linears(getattr(torch, dtype), library, threads)
    if llama.knows(json.loads((folder / "config.json").read_text(encoding="utf-8"))):
        return llama.load(folder, linears)
    from services.worker.engine.torch import generic  # its import takes seconds

    return generic.load(folder, linears)


def eos_token_ids(model_path: Path) -> frozenset[int]:
    """The model's end-of-text tokens: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        path = model_path / name
        eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
        if eos is not None:
            return frozenset([eos] if isinstance(eos, int) else eos)
    return frozenset()
