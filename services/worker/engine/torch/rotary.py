"""Rotary position embeddings (Su et al., 2021, arXiv:2104.09864), in the halves layout of Llama's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

KNOWN = ("default", "linear", "llama3")


class Rotary:
    """Turns heads by their tokens' positions."""

    def __init__(self, head_dim: int, parameters: Mapping[str, Any], dtype: torch.dtype) -> None:
        self._frequencies = frequencies(head_dim, parameters)
        self._dtype = dtype

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each [T, 1, head_dim / 2], for positions [T]."""
        angles = positions[:, None, None].float() * self._frequencies
        return angles.cos().to(self._dtype), angles.sin().to(self._dtype)


def turn(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Heads [T, n, head_dim] turned by angles as `Rotary.at` gives them."""
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)


def parameters_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a config.json says of rotary embeddings, wherever its version says it; `rope_type` is always there."""
    found = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = found.get("rope_type", found.get("type", "default"))
    theta = found.get("rope_theta", config.get("rope_theta", 10_000.0))
    return {**found, "rope_type": kind, "rope_theta": theta}


def frequencies(head_dim: int, parameters: Mapping[str, Any]) -> Tensor:
    """Radians a token of each pair of dimensions, [head_dim / 2]; raises ValueError for a kind not in KNOWN."""
    kind, theta = parameters["rope_type"], parameters["rope_theta"]
    plain: Tensor = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim)
    if kind == "default":
        return plain
    if kind == "linear":
        return plain / float(parameters["factor"])
    if kind == "llama3":
        return _llama3(plain, parameters)
    raise ValueError(f"rope_type {kind!r}: must be one of {', '.join(KNOWN)}")


def _llama3(plain: Tensor, parameters: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's: long waves are stretched by `factor`, short ones stay, between them it is blended.

    As in huggingface/transformers, modeling_rope_utils.py, _compute_llama3_parameters.
    """
    factor, length = parameters["factor"], parameters["original_max_position_embeddings"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    waves = 2 * math.pi / plain
    blend = (length / waves - low) / (high - low)
    blended = (1 - blend) * plain / factor + blend * plain
    medium = (waves >= length / high) & (waves <= length / low)
    return torch.where(medium, blended, torch.where(waves > length / low, plain / factor, plain))
