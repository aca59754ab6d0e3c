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
    batch.pool.write(batch.slots[layer], key[0].transpose(0, 1), value[0].transpose(0, 1))
    parts = []
    if batch.singles is not None:
        singles = query[0, :, : batch.singles.rows].transpose(0, 1).contiguous()
        parts.append(batch.pool.attend(singles, layer, batch.singles, scaling)[None])
    for rows in batch.rows:
        here = slice(rows.start, rows.stop)
        if rows.past is None:
            parts.append(_attend(query[:, :, here], key[:, :, here], value[:, :, here], None, scaling))
        else:
            window = rows.past.window
            batch.pool.gather(rows.past.halves[layer], window)
            parts.append(_attend(query[:, :, here], window.keys, window.values, rows.past.mask, scaling))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1), None


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """The last T tokens of a sequence look back.

    q [1, heads, T, d]; k, v [1, kv_heads, S, d]; mask [T, S] if 1 < T < S; result [1, T, heads, d].
    """
    heads, tokens, dim = q.shape[1:]
    if tokens == 1:
        # Heads that share keys are taken as that many query tokens: then each key is read once.
        grouped = q.reshape(1, k.shape[1], -1, dim)
        return functional.scaled_dot_product_attention(grouped, k, v, scale=scaling).view(1, 1, heads, dim)
    out = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True, scale=scaling
    )
    return out.transpose(1, 2)


AttentionInterface.register(NAME, paged_attention)
