"""Attention over the paged KV pool, as transformers calls it: once a layer, all sequences of the step side by side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from services.worker.engine.torch.batch import Batch

NAME = "diphase_paged"


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
    """Write the step's keys and values into the pool and attend over each sequence's own tokens.

    query [1, heads, T, head_dim]; key, value [1, kv_heads, T, head_dim]; result [1, T, heads, head_dim].
    Raises NotImplementedError for what a model asks of attention beyond that.
    """
    unknown = [name for name in ("sliding_window", "softcap", "s_aux") if kwargs.get(name) is not None]
    if unknown:
        raise NotImplementedError(f"this engine's attention has no {', '.join(unknown)}, which the model uses")
    layer: int = module.layer_idx  # type: ignore[assignment]
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))  # [T, heads, head_dim]
    batch.pool.write(batch.slots[layer], k, v)
    out = torch.empty(q.shape, dtype=q.dtype)
    for group in batch.groups:
        rows = slice(group.start, group.stop)
        past = batch.pool.gather(group.halves[layer]).view(2, group.stop - group.start, -1, *k.shape[1:])
        out[rows] = _decode(q[rows], past[0], past[1], group.mask, scaling)
    for chunk in batch.chunks:
        rows = slice(chunk.start, chunk.stop)
        if chunk.halves is None:
            out[rows] = _prefill(q[rows], k[rows], v[rows], None, scaling)
        else:
            past = batch.pool.gather(chunk.halves[layer])[:, : chunk.length]
            out[rows] = _prefill(q[rows], past[0], past[1], chunk.mask, scaling)
    return out[None], None


def _decode(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """One query token for each of B sequences: q [B, heads, d], k and v [B, S, kv_heads, d], mask [B, 1, 1, S].

    Query heads that share a KV head are taken as that many query tokens: then there is nothing to repeat.
    """
    batch, heads, dim = q.shape
    grouped = q.reshape(batch, k.shape[2], -1, dim)
    out = functional.scaled_dot_product_attention(
        grouped, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, scale=scaling
    )
    return out.reshape(batch, heads, dim)


def _prefill(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """T query tokens of one sequence, its last: q [T, heads, d], k and v [S, kv_heads, d], mask [T, S] if S > T."""
    q, k, v = (part.transpose(0, 1)[None] for part in (q, k, v))
    out = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True, scale=scaling
    )
    return out[0].transpose(0, 1)


AttentionInterface.register(NAME, paged_attention)
