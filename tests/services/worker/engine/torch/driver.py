"""An engine whose events are collected by request, for tests."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from services.common.errors import DiphaseError
from services.worker.engine.protocol import EngineRequest, Event, Sampling
from services.worker.engine.torch.config import EngineConfig
from services.worker.engine.torch.engine import TorchEngine

GREEDY = Sampling(temperature=0.0)
PATIENCE = 300.0


@dataclass
class Answer:
    """All events of one request together."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    finish_reason: str | None = None
    error: DiphaseError | None = None
    kept_blocks: list[int] | None = None
    kept_tokens: int = 0

    @property
    def ended(self) -> bool:
        return self.finish_reason is not None or self.error is not None


class Driver:
    """Owns the engine; waits have a deadline and fail the test."""

    def __init__(self, config: EngineConfig) -> None:
        from services.worker.engine.torch.layout import block_bytes, layout_of

        self.config = config
        self.block_bytes = block_bytes(layout_of(config.model_path, config.dtype, config.block_size))
        self.memory = memoryview(bytearray(config.num_blocks * self.block_bytes))
        self.engine = TorchEngine(config, self.memory)
        self._answers: dict[str, Answer] = {}
        self._changed = threading.Condition()
        self._ids = map("r{}".format, itertools.count())
        self.engine.start(self._receive)

    def close(self) -> None:
        """End it and give its gigabyte back, which hangs in a cycle that the collector thinks small."""
        self.engine.stop()
        del self.engine
        gc.collect()

    def _receive(self, events: list[Event]) -> None:
        with self._changed:
            for event in events:
                answer = self._answers.setdefault(event.request_id, Answer())
                assert not answer.ended, "an event after the last"
                answer.tokens += event.token_ids
                answer.logprobs += event.token_logprobs
                answer.top += event.top_logprobs
                answer.finish_reason, answer.error = event.finish_reason, event.error
                answer.kept_blocks, answer.kept_tokens = event.kept_blocks, event.kept_tokens
            self._changed.notify_all()

    def submit(
        self, prompt: list[int], max_tokens: int, sampling: Sampling = GREEDY, timeout: float = PATIENCE, **fields: Any
    ) -> str:
        request_id = next(self._ids)
        deadline = time.monotonic() + timeout
        self.engine.submit(EngineRequest(request_id, prompt, max_tokens, sampling, deadline, **fields))
        return request_id

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while not condition():
                assert time.monotonic() < deadline, "waited in vain"
                self._changed.wait(0.01)

    def seen(self, request_id: str) -> Answer:
        return self._answers.get(request_id, Answer())

    def wait(self, request_id: str) -> Answer:
        self.until(lambda: self.seen(request_id).ended)
        return self.seen(request_id)

    def answer(self, prompt: list[int], max_tokens: int, sampling: Sampling = GREEDY, **fields: Any) -> Answer:
        return self.wait(self.submit(prompt, max_tokens, sampling, **fields))

    def tokens(self, prompt: list[int], max_tokens: int, sampling: Sampling = GREEDY, **fields: Any) -> list[int]:
        answer = self.answer(prompt, max_tokens, sampling, **fields)
        assert answer.error is None, answer.error
        return answer.tokens

    def at_rest(self) -> None:
        """Wait until nothing runs and every block is free."""
        self.until(lambda: (load := self.engine.load()).kv_blocks_free == self.config.num_blocks and not load.active)

    def read(self, block: int) -> bytes:
        return bytes(self.memory[block * self.block_bytes : (block + 1) * self.block_bytes])

    def write(self, block: int, data: bytes) -> None:
        self.memory[block * self.block_bytes : (block + 1) * self.block_bytes] = data
