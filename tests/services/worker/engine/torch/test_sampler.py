"""What the sampler draws, against the definitions written out plainly."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from services.worker.engine.protocol import Sampling
from services.worker.engine.torch import sampler

DRAWS = 4000


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(50, generator=torch.Generator().manual_seed(3)) * 2


def _draw(logits: torch.Tensor, sampling: Sampling, count: int = DRAWS) -> list[int]:
    return [sampler.choose(logits, {}, sampling, position).token for position in range(count)]


def test_uniform_is_a_pure_function_of_seed_and_position() -> None:
    values = [sampler.uniform(7, position) for position in range(2000)]
    assert values == [sampler.uniform(7, position) for position in range(2000)]
    assert values != [sampler.uniform(8, position) for position in range(2000)]
    assert len(set(values)) == 2000
    assert all(0 <= value < 1 for value in values)
    counts = Counter(int(value * 10) for value in values)
    assert sum((counts[i] - 200) ** 2 / 200 for i in range(10)) < 27.9  # chi-square, 9 degrees, p = 0.001


def test_greedy(logits: torch.Tensor) -> None:
    assert set(_draw(logits, Sampling(temperature=0.0), 5)) == {int(logits.argmax())}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_frequencies_follow_the_softmax(logits: torch.Tensor, temperature: float) -> None:
    probabilities = (logits / temperature).softmax(-1).tolist()
    counts = Counter(_draw(logits, Sampling(temperature=temperature, seed=5)))
    likely = [i for i, p in enumerate(probabilities) if p * DRAWS > 10]
    rest = DRAWS - sum(counts[i] for i in likely)
    expected_rest = DRAWS * (1 - sum(probabilities[i] for i in likely))
    statistic = sum((counts[i] - DRAWS * probabilities[i]) ** 2 / (DRAWS * probabilities[i]) for i in likely)
    statistic += (rest - expected_rest) ** 2 / max(expected_rest, 1)
    degrees = len(likely)
    assert statistic < degrees + 4 * math.sqrt(2 * degrees)


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (0, 0.6), (8, 0.5), (1, 1.0), (0, 1e-9), (1000, 0.999)])
def test_support_of_top_k_and_top_p(logits: torch.Tensor, top_k: int, top_p: float) -> None:
    order = logits.argsort(descending=True).tolist()
    kept = order[: top_k or None]
    weights = [math.exp(logits[i]) for i in kept]
    support, mass = set(), 0.0
    for token, weight in zip(kept, weights, strict=True):
        support.add(token)
        mass += weight / sum(weights)
        if mass >= top_p:
            break
    drawn = Counter(_draw(logits, Sampling(top_k=top_k, top_p=top_p, seed=2)))
    assert set(drawn) <= support
    likely = {i for i in support if math.exp(logits[i]) / sum(weights) > 0.01}
    assert likely <= set(drawn)


def test_top_p_wider_than_the_first_look() -> None:
    logits = torch.zeros(5000)
    logits[4999] = 1e-3  # nearly uniform: half the mass needs about 2,500 tokens
    drawn = _draw(logits, Sampling(top_p=0.5, seed=1), 1500)
    assert len(set(drawn)) > 1024
    assert sampler.choose(logits, {}, Sampling(top_p=1e-9), 0).token == 4999


def test_penalties_against_a_plain_reference(logits: torch.Tensor) -> None:
    sampling = Sampling(frequency_penalty=0.7, presence_penalty=-0.3)
    answer = Counter([3, 3, 3, 7, 49])
    expected = [value - (answer[i] * 0.7 + (-0.3 if answer[i] else 0.0)) for i, value in enumerate(logits.tolist())]
    before = logits.clone()
    assert sampler.penalise(logits, answer, sampling).tolist() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(logits, before)


def test_logprobs_are_the_models_own(logits: torch.Tensor) -> None:
    sampling = Sampling(temperature=0.3, top_k=2, frequency_penalty=1.0, logprobs=3, seed=9)
    choice = sampler.choose(logits, Counter({0: 2}), sampling, 4)
    plain = logits.log_softmax(-1)
    assert choice.logprob == pytest.approx(plain[choice.token].item())
    assert [token for token, _ in choice.top] == plain.argsort(descending=True)[:3].tolist()
    assert [value for _, value in choice.top] == pytest.approx(plain.sort(descending=True).values[:3].tolist())


def test_rounding_never_gives_a_token_without_weight() -> None:
    logits = torch.tensor([0.0, 0.0, float("-inf"), float("-inf")])
    tokens = {sampler._invert(logits.softmax(-1), u) for u in (0.0, 0.25, 0.5, 0.75, 1 - 2**-53)}
    assert tokens == {0, 1}
