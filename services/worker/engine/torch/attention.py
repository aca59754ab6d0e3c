"""Attention over the paged KV pool: once a layer, all sequences of the step side by side."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from services.worker.engine.torch.batch import Batch


def attend(batch: Batch, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Write the step's keys and values into the pool and attend over each sequence's own tokens.

    query [T, heads, head_dim]; key, value [T, kv_heads, head_dim]; result [T, heads, head_dim].
    """
    batch.pool.write(batch.slots[layer], key, value)
    parts = []
    if batch.singles is not None:
        parts.append(batch.pool.attend(query[: batch.singles.rows].contiguous(), layer, batch.singles, scaling))
    for rows in batch.rows:
        here = slice(rows.start, rows.stop)
        own = _side_by_side(query[here])
        if rows.past is None:
            parts.append(_attend(own, _side_by_side(key[here]), _side_by_side(value[here]), None, scaling))
        else:
            window = rows.past.window
            batch.pool.gather(rows.past.halves[layer], window)
            parts.append(_attend(own, window.keys, window.values, rows.past.mask, scaling))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _side_by_side(heads: Tensor) -> Tensor:
    """[T, n, d] to [1, n, T, d], as torch's attention takes it."""
    return heads.transpose(0, 1)[None]


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """The last T tokens of a sequence look back.

    q [1, heads, T, d]; k, v [1, kv_heads, S, d]; mask [T, S] if 1 < T < S; result [T, heads, d].
    """
    heads, tokens, dim = q.shape[1:]
    if tokens == 1:
        # Heads that share keys are taken as that many query tokens: then each key is read once.
        grouped = q.reshape(1, k.shape[1], -1, dim)
        return functional.scaled_dot_product_attention(grouped, k, v, scale=scaling).view(1, heads, dim)
    out = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True, scale=scaling
    )
    return out[0].transpose(0, 1)
