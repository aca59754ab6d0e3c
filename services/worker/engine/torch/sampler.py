"""From logits to tokens. A token depends on the logits, the answer so far, and (seed, position): on nothing else.

So two engines that split a sequence between them give the tokens that one would have given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
from torch import Tensor

from services.worker.engine.protocol import Sampling

GREEDY_BELOW = 1e-5  # a temperature below it means 0
_FIRST_LOOK = 1024  # tokens among which the nucleus of top_p is looked for before all are sorted


@dataclass(frozen=True, slots=True)
class Choice:
    """The token chosen from one row of logits; log probabilities where the request asks for them."""

    token: int
    logprob: float = 0.0
    top: list[tuple[int, float]] = field(default_factory=list)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that is a pure function of a request's seed and the position of a token in its sequence."""
    digest = blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def penalise(logits: Tensor, answer: Mapping[int, int], sampling: Sampling) -> Tensor:
    """OpenAI's penalties: a token that the answer holds n times loses n * frequency + presence. logits [V]."""
    if not answer or not (sampling.frequency_penalty or sampling.presence_penalty):
        return logits
    tokens = torch.tensor(list(answer))
    counts = torch.tensor(list(answer.values()), dtype=logits.dtype)
    loss = counts * sampling.frequency_penalty + sampling.presence_penalty
    return logits.index_add(0, tokens, -loss)


def choose(logits: Tensor, answer: Mapping[int, int], sampling: Sampling, position: int) -> Choice:
    """The token at `position`; logits [V] float32, all finite.

    Log probabilities are those of the model, before penalties and temperature.
    """
    adjusted = penalise(logits, answer, sampling)
    if sampling.temperature < GREEDY_BELOW:
        token = int(adjusted.argmax())
    else:
        token = _draw(adjusted / sampling.temperature, sampling, uniform(sampling.seed, position))
    if sampling.logprobs is None:
        return Choice(token)
    logprobs = logits.log_softmax(-1)
    top = logprobs.topk(sampling.logprobs) if sampling.logprobs else None
    likeliest = list(zip(top.indices.tolist(), top.values.tolist(), strict=True)) if top else []
    return Choice(token, float(logprobs[token]), likeliest)


def _draw(logits: Tensor, sampling: Sampling, u: float) -> int:
    """Invert the cumulative distribution at `u`, over the tokens that top_k and top_p leave."""
    size = logits.shape[0]
    k = min(sampling.top_k, size) if sampling.top_k > 0 else size
    if k == size and sampling.top_p >= 1:
        return _invert(logits.softmax(-1), u)
    if k == size:
        total = logits.logsumexp(-1)
        values, tokens = logits.topk(min(_FIRST_LOOK, size))
        if (values - total).exp().sum() < sampling.top_p:
            values, tokens = logits.sort(descending=True)
        probabilities = (values - total).exp()
    else:
        values, tokens = logits.topk(k)
        probabilities = values.softmax(-1)
    if sampling.top_p < 1:  # the shortest head that reaches top_p, at least one token
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities[: max(1, int((before < sampling.top_p).sum()))]
    return int(tokens[_invert(probabilities, u)])


def _invert(weights: Tensor, u: float) -> int:
    """The first index at which the cumulative sum of `weights`, brought to 1, exceeds `u`; its weight is positive."""
    sums = weights.double().cumsum(-1)
    total = float(sums[-1])
    # Rounding may take u * total up to total itself: then the last token with any weight.
    index = int(torch.searchsorted(sums, u * total, right=True))
    return min(index, int(torch.searchsorted(sums, total)))
