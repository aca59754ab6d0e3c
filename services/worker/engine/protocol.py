"""What a worker asks of an engine, whichever it is.

An engine runs its steps in a thread of its own. `submit`, `abort`, `free` and `load` may be called from any thread;
events are delivered from the engine's threads, all those of one step in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.common.errors import DiphaseError
from services.common.wire import FinishReason, Layout, Load


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Randomness is a function of (seed, position of the token in the sequence)."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logprobs: int | None = None
    stop_token_ids: frozenset[int] = frozenset()  # the model's own end-of-text tokens not included
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence.

    `fetch`, where given, fills the first `num_fetched` tokens' KV: once the engine has reserved blocks for the
    sequence, it calls `fetch(block_ids)` in a thread of its own pool, with the blocks that hold the fetched tokens, in
    order of position. What fetch raises becomes the request's error. The engine computes only the tokens from
    `num_fetched` on; that is at least one.
    """

    request_id: str
    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling
    deadline: float  # time.monotonic()
    output_tokens: int = 0  # how many tokens at the prompt's end count as answer for the penalties
    keep_kv: bool = False  # leave the blocks allocated at the end and name them in the last event
    num_fetched: int = 0
    fetch: Callable[[list[int]], None] | None = None


@dataclass(slots=True)
class Event:
    """What one step did for one request. After an event with `finish_reason` or `error` nothing follows."""

    request_id: str
    token_ids: list[int] = field(default_factory=list)
    token_logprobs: list[float] = field(default_factory=list)  # filled if sampling.logprobs is not None
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)  # filled if sampling.logprobs >= 1
    finish_reason: FinishReason | None = None
    error: DiphaseError | None = None
    cached_tokens: int = 0  # prompt tokens found in this engine's own prefix cache
    kept_blocks: list[int] | None = None  # keep_kv: now owned by the receiver, who calls Engine.free
    kept_tokens: int = 0  # how many tokens' KV those blocks hold


Sink = Callable[[list[Event]], None]


class Engine(Protocol):
    """One model on one device."""

    @property
    def layout(self) -> Layout:
        """How this engine's KV lies in memory."""
        ...

    @property
    def num_blocks(self) -> int:
        """KV blocks in the pool."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The model's end-of-text tokens."""
        ...

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""
        ...

    @property
    def steps(self) -> int:
        """Steps done since start: the sign of life that /health watches."""
        ...

    @property
    def busy_seconds(self) -> float:
        """Time spent in steps since start; an engine that always computes adds a second in each second."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it was started and runs no more: nothing is served from then on."""
        ...

    @property
    def fault(self) -> str | None:
        """Why /health must fail although steps are made, such as that all of them raise; else None."""
        ...

    def start(self, sink: Sink) -> None:
        """Begin to run steps; events go to `sink`."""
        ...

    def stop(self) -> None:
        """End the thread; running requests end with an error event. Idempotent."""
        ...

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; raises Saturated when the waiting queue is full, ContextTooLong when it can never fit."""
        ...

    def abort(self, request_id: str) -> None:
        """End a request without further events; unknown ids are ignored.

        Its blocks are freed once no step and no fetch uses them.
        """
        ...

    def free(self, block_ids: Sequence[int]) -> None:
        """Give back blocks that an event handed over."""
        ...

    def load(self) -> Load:
        """What the engine holds now."""
        ...
