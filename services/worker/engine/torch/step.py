"""One pass of the model over a batch: the part of the engine that knows torch but not requests' lives."""

from __future__ import annotations

import torch
from torch import Tensor

from services.worker.engine.protocol import EngineRequest, Sampling
from services.worker.engine.torch import sampler
from services.worker.engine.torch.batch import Batch, Span, build
from services.worker.engine.torch.kv_pool import KvPool
from services.worker.engine.torch.language_model import LanguageModel
from services.worker.engine.torch.sampler import Choice
from services.worker.engine.torch.sequence import Sequence


def forward(model: LanguageModel, batch: Batch) -> Tensor:
    """Compute the batch's KV and the logits [rows that give a token, V] in float32."""
    rows = batch.last_tokens if len(batch.last_tokens) else torch.zeros(1, dtype=torch.int64)
    return model.logits(batch, rows)[: len(batch.last_tokens)].float()


def choose(logits: Tensor, sequences: list[Sequence]) -> list[Choice | None]:
    """A token for each row of logits; None where the logits are not finite numbers."""
    if not sequences:
        return []
    best = logits.max(-1)
    # A NaN or an infinity anywhere in a row shows in its largest or in its sum.
    sound = (best.values.isfinite() & logits.sum(-1).isfinite()).tolist()
    greedy = best.indices.tolist()
    out: list[Choice | None] = []
    for row, sequence in enumerate(sequences):
        if not sound[row]:
            out.append(None)
        elif is_plain(sequence):
            out.append(Choice(greedy[row]))
        else:
            out.append(sampler.choose(logits[row], sequence.answer, sequence.request.sampling, len(sequence.tokens)))
    return out


def is_plain(sequence: Sequence) -> bool:
    """Whether the largest logit is all that is asked for."""
    sampling = sequence.request.sampling
    return (
        sampling.temperature < sampler.GREEDY_BELOW
        and sampling.logprobs is None
        and not sampling.frequency_penalty
        and not sampling.presence_penalty
    )


def warm_up(model: LanguageModel, pool: KvPool) -> None:
    """Let oneDNN prepare its kernels, and a model that this engine cannot run fail now."""
    sequences = []
    for length in (1, pool.layout.block_size):
        request = EngineRequest("warm-up", [0] * length, 1, Sampling(), deadline=0.0)
        sequences.append(Sequence.of(request))
        sequences[-1].blocks = [0]
    with torch.inference_mode():
        forward(model, build([Span(sequence, sequence.pending) for sequence in sequences], pool))
        pool.scrub([0])
