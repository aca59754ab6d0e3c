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
    for rows in batch.rows:
        here = slice(rows.start, rows.stop)
        if rows.halves is None:
            out[here] = _attend(q[here], k[here], v[here], None, scaling)
        else:
            known = batch.pool.gather(rows.halves[layer])[:, : rows.length]
            out[here] = _attend(q[here], known[0], known[1], rows.mask, scaling)
    return out[None], None


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """The last T tokens of a sequence look back: q [T, heads, d]; k, v [S, kv_heads, d]; mask [T, S] if 1 < T < S."""
    tokens, heads, dim = q.shape
    k, v = k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    if tokens == 1:
        # Heads that share keys are taken as that many query tokens: then each key is read once.
        grouped = q.view(1, k.shape[1], -1, dim)
        return functional.scaled_dot_product_attention(grouped, k, v, scale=scaling).reshape(1, heads, dim)
    out = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True, scale=scaling
    )
    return out[0].transpose(0, 1)


AttentionInterface.register(NAME, paged_attention)
