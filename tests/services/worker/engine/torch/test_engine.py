"""The life of requests in the engine: ends of every kind, after which all blocks are free again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from services.common.errors import (
    ContextTooLong,
    DeadlineExceeded,
    EngineFailed,
    InvalidRequest,
    KvUnavailable,
    Saturated,
)
from services.worker.engine.torch.batch import Batch
from services.worker.engine.torch.config import EngineConfig
from tests.services.worker.engine.torch.driver import GREEDY, Driver

ENDLESS = replace(GREEDY, ignore_eos=True)
PROMPT = list(range(100, 180))


@pytest.fixture(scope="module")
def small(model_path: Path) -> Iterator[Driver]:
    """Room for two requests at a time, whose blocks are soon reused, and two that wait."""
    driver = Driver(EngineConfig(model_path, num_blocks=10, max_model_len=512, max_running=2, max_waiting=2))
    yield driver
    driver.close()


def test_logprobs_and_finish_reasons(driver: Driver) -> None:
    answer = driver.answer(PROMPT, 3, replace(ENDLESS, logprobs=2))
    assert answer.finish_reason == "length"
    assert len(answer.tokens) == len(answer.logprobs) == len(answer.top) == 3
    for token, logprob, top in zip(answer.tokens, answer.logprobs, answer.top, strict=True):
        assert top[0] == (token, pytest.approx(logprob))
        assert len(top) == 2
    stopped = driver.answer(PROMPT, 3, replace(ENDLESS, stop_token_ids=frozenset(answer.tokens[1:2])))
    assert stopped.finish_reason == "stop"
    assert stopped.tokens == answer.tokens[: answer.tokens.index(answer.tokens[1]) + 1]


def test_end_of_text_stops(driver: Driver, reference: Any) -> None:
    prompt = reference.encode("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    answer = driver.answer(prompt, 60)
    assert answer.finish_reason == "stop"
    assert answer.tokens[-1] in driver.engine.eos_token_ids
    longer = driver.answer(prompt, len(answer.tokens) + 3, ENDLESS)
    assert longer.finish_reason == "length"
    assert longer.tokens[: len(answer.tokens)] == answer.tokens


def test_refusals(small: Driver) -> None:
    cases: list[tuple[type[Exception], dict[str, Any]]] = [
        (InvalidRequest, {"prompt": []}),
        (InvalidRequest, {"prompt": [small.engine.vocab_size]}),
        (InvalidRequest, {"prompt": [-1]}),
        (InvalidRequest, {"max_tokens": 0}),
        (InvalidRequest, {"output_tokens": 81}),
        (InvalidRequest, {"num_fetched": 80, "fetch": lambda blocks: None}),
        (InvalidRequest, {"num_fetched": 8}),
        (ContextTooLong, {"max_tokens": 433}),
    ]
    for error, fields in cases:
        with pytest.raises(error):
            small.submit(**{"prompt": PROMPT, "max_tokens": 4, **fields})
    small.at_rest()


def test_more_blocks_than_there_are_is_refused_at_once(model_path: Path) -> None:
    driver = Driver(EngineConfig(model_path, num_blocks=2, max_model_len=512, max_running=2))
    try:
        with pytest.raises(ContextTooLong, match="KV blocks"):
            driver.submit(PROMPT, 100)
        assert driver.answer(PROMPT, 49, ENDLESS).finish_reason == "length"  # 80 + 49 - 1 tokens: two blocks
    finally:
        driver.close()


def test_saturation(small: Driver) -> None:
    gate = threading.Event()
    held = [
        small.submit(PROMPT, 4, num_fetched=64, fetch=lambda blocks: _wait(gate, KvUnavailable("gone")))
        for _ in range(2)
    ]
    small.until(lambda: small.engine.load().running == 2)
    waiting = [small.submit(PROMPT, 2, ENDLESS) for _ in range(2)]
    with pytest.raises(Saturated):
        small.submit(PROMPT, 2)
    load = small.engine.load()
    assert (load.running, load.waiting, load.queued_tokens) == (2, 2, 2 * 16 + 2 * 80)
    assert load.active == held + waiting
    gate.set()
    assert all(isinstance(small.wait(request_id).error, KvUnavailable) for request_id in held)
    assert all(len(small.wait(request_id).tokens) == 2 for request_id in waiting)
    small.at_rest()


def _wait(gate: threading.Event, error: Exception | None = None) -> None:
    assert gate.wait(60)
    if error is not None:
        raise error


def test_others_go_on_while_one_fetches(small: Driver) -> None:
    gate = threading.Event()
    held = small.submit(PROMPT, 4, num_fetched=64, fetch=lambda blocks: _wait(gate, RuntimeError("broken pipe")))
    assert len(small.tokens(PROMPT, 5, ENDLESS)) == 5
    assert not small.seen(held).ended
    gate.set()
    error = small.wait(held).error
    assert isinstance(error, EngineFailed)
    assert "broken pipe" in error.message
    small.at_rest()


@pytest.mark.parametrize("end", ["abort", "deadline"])
def test_blocks_stay_taken_while_a_fetch_writes(small: Driver, end: str) -> None:
    gate, entered = threading.Event(), threading.Event()

    def fetch(blocks: list[int]) -> None:
        entered.set()
        _wait(gate)

    timeout = 60.0 if end == "abort" else 0.2
    held = small.submit(PROMPT, 4, timeout=timeout, num_fetched=64, fetch=fetch)
    assert entered.wait(60)
    if end == "abort":
        small.engine.abort(held)
    else:
        assert isinstance(small.wait(held).error, DeadlineExceeded)
    assert small.engine.load().active == []
    assert small.tokens(PROMPT, 2, ENDLESS)  # another request runs from start to end meanwhile
    assert small.engine.load().kv_blocks_free == 10 - 2
    gate.set()
    small.at_rest()
    assert small.seen(held).tokens == []


def test_deadline_of_a_running_request(small: Driver) -> None:
    request_id = small.submit(PROMPT, 400, ENDLESS, timeout=0.3)
    assert isinstance(small.wait(request_id).error, DeadlineExceeded)
    small.at_rest()


def test_nobody_overtakes(small: Driver) -> None:
    """A request that needs more blocks than are free is served before smaller ones that came later."""
    first = small.submit(PROMPT, 200, ENDLESS)  # five blocks of ten
    big = small.submit(PROMPT, 400, ENDLESS)  # eight
    little = small.submit(PROMPT, 2, ENDLESS)
    small.until(lambda: len(small.seen(first).tokens) > 1)
    assert small.engine.load().waiting == 2
    small.engine.abort(first)
    small.wait(little)
    assert small.seen(big).tokens
    small.engine.abort(big)
    small.at_rest()


def test_aborts_at_any_time(driver: Driver) -> None:
    rng = random.Random(11)
    alone = driver.tokens(PROMPT, 12, ENDLESS)
    for _ in range(3):
        ids = [driver.submit(PROMPT, 12, ENDLESS, keep_kv=i % 3 == 0) for i in range(12)]
        doomed = set(rng.sample(ids, 6))
        for request_id in rng.sample(sorted(doomed), 6):
            time.sleep(rng.uniform(0, 0.04))
            driver.engine.abort(request_id)
        for request_id in ids:
            if request_id not in doomed:
                assert driver.wait(request_id).tokens == alone
        driver.until(lambda: not driver.engine.load().active)
        for request_id in ids:
            if kept := driver.seen(request_id).kept_blocks:
                driver.engine.free(kept)
        driver.at_rest()
    driver.engine.abort("nobody")


def test_a_step_that_raises_ends_its_requests_only(small: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def explode(batch: Batch, rows: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of luck")
        return logits(batch, rows)

    failed = small.engine.failed_steps
    logits = small.engine._model.logits
    with monkeypatch.context() as patch:
        patch.setattr(small.engine._model, "logits", explode)
        answer = small.answer(PROMPT, 5, ENDLESS)
    assert isinstance(answer.error, EngineFailed)
    assert "out of luck" in answer.error.message
    assert len(answer.tokens) == 1
    assert small.engine.failed_steps == failed + 1
    small.at_rest()
    assert len(small.tokens(PROMPT, 3, ENDLESS)) == 3


def test_a_device_that_fails_every_step_is_a_fault_until_one_succeeds(
    small: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(small.engine._model, "logits", explode)
        assert isinstance(small.answer(PROMPT, 1).error, EngineFailed)
        assert small.engine.fault is None, "one failure may be its request's"
        for _ in range(4):
            small.answer(PROMPT, 1)
        assert small.engine.fault == "the engine's last 5 steps failed"
    small.tokens(PROMPT, 1)
    assert small.engine.fault is None


def test_a_loop_that_ends_leaves_nobody_waiting(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(EngineConfig(model_path, num_blocks=10, max_model_len=512, max_running=2))
    assert not driver.engine.ended

    def broken(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(driver.engine._fetchers, "submit", broken)
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    ids = [driver.submit(PROMPT, 200, ENDLESS), driver.submit(PROMPT, 2, num_fetched=64, fetch=lambda _: None)]
    assert all(isinstance(driver.wait(request_id).error, EngineFailed) for request_id in ids)
    driver.until(lambda: driver.engine.ended)
    assert driver.engine.fault == "the engine's loop has ended"
    with pytest.raises(EngineFailed):
        driver.submit(PROMPT, 1)
    driver.close()


def test_numbers_that_are_not_finite_harm_nobody_else(small: Driver) -> None:
    """Fetched KV full of NaN: that request fails, its neighbour and the blocks' next owners don't notice."""
    expected = small.tokens(PROMPT, 6, ENDLESS)
    poison = np.full(small.block_bytes // 4, np.nan, np.float32).tobytes()
    poisoned = small.submit(
        PROMPT, 6, ENDLESS, num_fetched=64, fetch=lambda blocks: [small.write(b, poison) for b in blocks] and None
    )
    neighbour = small.submit(PROMPT, 6, ENDLESS)
    error = small.wait(poisoned).error
    assert isinstance(error, EngineFailed)
    assert "finite" in error.message
    assert small.wait(neighbour).tokens == expected
    small.at_rest()
    assert all(small.tokens(PROMPT, 6, ENDLESS) == expected for _ in range(4))


def test_stop_ends_everything(model_path: Path) -> None:
    driver = Driver(EngineConfig(model_path, num_blocks=10, max_model_len=512, max_running=2))
    ids = [driver.submit(PROMPT, 200, ENDLESS) for _ in range(3)]
    driver.until(lambda: bool(driver.seen(ids[0]).tokens))
    driver.engine.stop()
    driver.engine.stop()
    assert all(isinstance(driver.wait(request_id).error, EngineFailed) for request_id in ids)
    with pytest.raises(EngineFailed):
        driver.submit(PROMPT, 1)
    driver.memory.release()  # nothing holds a view of the pool any more


def test_a_receiver_that_raises_does_not_end_the_loop(small: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, raised = small._receive, []

    def once(events: list[Any]) -> None:
        receive(events)
        if not raised:
            raised.append(1)
            raise ValueError("cannot take it")

    monkeypatch.setattr(small.engine, "_sink", once)
    assert len(small.tokens(PROMPT, 3, ENDLESS)) == 3
    assert raised
