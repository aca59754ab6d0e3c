"""Two engines that hand KV over give the tokens that one engine gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.worker.engine.protocol import Sampling
from services.worker.engine.torch.config import EngineConfig
from tests.services.worker.engine.torch.conftest import NATIVE
from tests.services.worker.engine.torch.driver import GREEDY, Driver

SEEDED = Sampling(temperature=0.9, top_p=0.95, top_k=200, seed=17, frequency_penalty=0.4, presence_penalty=0.2)
TOKENS = 8


@pytest.fixture(scope="module")
def decode(model_path: Path) -> Iterator[Driver]:
    driver = Driver(EngineConfig(model_path, num_blocks=40, max_model_len=1024, max_running=8, native_folder=NATIVE))
    yield driver
    driver.close()


def _prompt(length: int) -> list[int]:
    return [(37 * i * i + 101 * i + 13) % 48000 + 100 for i in range(length)]


def _split(prefill: Driver, decode: Driver, prompt: list[int], sampling: Sampling) -> list[int]:
    first = prefill.answer(prompt, 1, sampling, keep_kv=True)
    assert first.error is None
    assert first.kept_blocks is not None
    assert first.kept_tokens == len(prompt)
    assert len(first.kept_blocks) == -(-len(prompt) // 64)
    kept = first.kept_blocks

    def fetch(blocks: list[int]) -> None:
        for source, target in zip(kept, blocks, strict=True):
            decode.write(target, prefill.read(source))

    rest = decode.tokens(
        prompt + first.tokens, TOKENS - 1, sampling, output_tokens=1, num_fetched=len(prompt), fetch=fetch
    )
    prefill.engine.free(kept)
    return first.tokens + rest


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 129, 300])
def test_prefill_then_decode(driver: Driver, decode: Driver, length: int, sampling: Sampling) -> None:
    prompt = _prompt(length)
    assert _split(driver, decode, prompt, sampling) == driver.tokens(prompt, TOKENS, sampling)
    driver.at_rest()
    decode.at_rest()


@pytest.mark.parametrize("fetched", [1, 63, 64, 65, 128, 199])
def test_any_prefix_may_be_fetched(driver: Driver, decode: Driver, fetched: int) -> None:
    prompt = _prompt(200)
    kept = driver.answer(prompt, 1, keep_kv=True).kept_blocks
    assert kept is not None

    def fetch(blocks: list[int]) -> None:
        assert len(blocks) == -(-fetched // 64)
        for source, target in zip(kept, blocks, strict=False):
            decode.write(target, driver.read(source))

    assert decode.tokens(prompt, 4, num_fetched=fetched, fetch=fetch) == driver.tokens(prompt, 4)
    driver.engine.free(kept)
    driver.at_rest()


@pytest.mark.parametrize("done", [1, 3, 5])
def test_an_answer_is_resumed_from_its_tokens(driver: Driver, decode: Driver, done: int) -> None:
    """As when a worker dies in the middle: prompt and tokens so far go to another."""
    prompt = _prompt(70)
    whole = driver.tokens(prompt, TOKENS, SEEDED)
    assert decode.tokens(prompt + whole[:done], TOKENS - done, SEEDED, output_tokens=done) == whole[done:]


def test_kept_blocks_are_the_receivers(driver: Driver) -> None:
    answer = driver.answer(_prompt(100), 40, Sampling(temperature=0.0, ignore_eos=True), keep_kv=True)
    assert answer.kept_tokens == 139  # the last token's KV is never computed
    assert answer.kept_blocks is not None
    assert len(answer.kept_blocks) == 3
    assert driver.engine.load().kv_blocks_free == driver.config.num_blocks - 3
    driver.engine.free(answer.kept_blocks)
    with pytest.raises(ValueError, match="must be taken"):
        driver.engine.free(answer.kept_blocks)
    driver.at_rest()
