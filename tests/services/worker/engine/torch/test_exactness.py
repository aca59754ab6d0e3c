"""Greedy text equals transformers' own, however the work is cut into steps; a difference must be a tie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from services.worker.engine.torch.config import EngineConfig
from tests.e2e.reference import Reference
from tests.services.worker.engine.torch.conftest import NATIVE
from tests.services.worker.engine.torch.driver import GREEDY, Driver

TOKENS = 10
_LONG = "The quick brown fox jumps over the lazy dog, and then it rests beside the river. "
PROMPTS = {
    "one token": "The",
    "short": "The capital of France is",
    "chat": "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
    "Chinese": "中国的首都是北京，人口超过两千万。法国的首都是",
    "emoji": "I love 🍕 and 🎉! My favourite emoji is 😀👩‍👩‍👧 because",
    "code": "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "numbers": "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89,",
    "long": _LONG * 60,  # more than 1,000 tokens
    "medium": _LONG * 12,
    "blocks": _LONG * 3 + "So",
    "German": "Übermorgen fährt die Straßenbahn über die Brücke nach",
    "markup": "<html><body><h1>Title</h1><p>",
    "JSON": '{"name": "Alice", "age": 30, "address": {',
    "spaces": "a  b   c    d     e      f",
    "question": "Why is the sky blue?\nBecause",
    "Arabic": "عاصمة فرنسا هي",
}


@pytest.fixture(scope="module")
def expected(reference: Reference) -> dict[str, tuple[list[int], list[int]]]:
    """Prompt and answer ids of each prompt."""
    prompts = {name: reference.encode(text) for name, text in PROMPTS.items()}
    assert len(prompts["one token"]) == 1
    assert len(prompts["long"]) > 1000
    answers = reference.greedy_all(list(prompts.values()), TOKENS)
    return dict(zip(prompts, zip(prompts.values(), answers, strict=True), strict=True))


def _compare(driver: Driver, reference: Reference, expected: dict[str, tuple[list[int], list[int]]]) -> None:
    ids = {name: driver.submit(prompt, TOKENS, GREEDY) for name, (prompt, _) in expected.items()}
    for name, (prompt, answer) in expected.items():
        got = driver.wait(ids[name])
        assert got.error is None
        reference.assert_equal(prompt, got.tokens, answer, name)
    driver.at_rest()


@pytest.mark.parametrize("driver", ["native", "torch"], indirect=True)
def test_alone(driver: Driver, reference: Reference, expected: dict[str, tuple[list[int], list[int]]]) -> None:
    for name in ("one token", "short", "Chinese", "emoji", "code", "long"):
        _compare(driver, reference, {name: expected[name]})


@pytest.mark.parametrize("driver", ["native", "torch"], indirect=True)
def test_sixteen_at_once(
    driver: Driver, reference: Reference, expected: dict[str, tuple[list[int], list[int]]]
) -> None:
    _compare(driver, reference, expected)


@pytest.mark.parametrize(("block_size", "batch_tokens"), [(16, 33), (64, 100)])
def test_prompts_in_chunks(
    model_path: Path,
    reference: Reference,
    expected: dict[str, tuple[list[int], list[int]]],
    block_size: int,
    batch_tokens: int,
) -> None:
    """Steps mix rows that decode with chunks of prompts, cut anywhere."""
    blocks = 6144 // block_size
    driver = Driver(
        EngineConfig(
            model_path,
            num_blocks=blocks,
            block_size=block_size,
            max_model_len=2048,
            max_running=16,
            prefill_max_batch_tokens=batch_tokens,
            native_folder=NATIVE,
        )
    )
    try:
        _compare(driver, reference, expected)
    finally:
        driver.close()


def test_bfloat16_is_close(model_path: Path, driver: Driver, reference: Reference) -> None:
    prompt = reference.encode(PROMPTS["short"])
    half = Driver(
        EngineConfig(model_path, num_blocks=8, dtype="bfloat16", max_model_len=512, max_running=4, native_folder=NATIVE)
    )
    try:
        got = half.answer(prompt, 4, replace(GREEDY, logprobs=0))
    finally:
        half.close()
    exact = driver.answer(prompt, 4, replace(GREEDY, logprobs=0))
    assert got.tokens == exact.tokens
    assert got.logprobs == pytest.approx(exact.logprobs, abs=0.15)
