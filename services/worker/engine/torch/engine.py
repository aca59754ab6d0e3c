"""The torch engine: requests come in from any thread, one loop computes steps for all that run, events go out."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from services.common import logs
from services.common.errors import (
    ContextTooLong,
    DeadlineExceeded,
    DiphaseError,
    EngineFailed,
    InvalidRequest,
    Saturated,
)
from services.common.wire import FinishReason, Layout, Load
from services.worker.engine.protocol import EngineRequest, Event, Sampling, Sink
from services.worker.engine.torch import batch as batching
from services.worker.engine.torch import loader, step
from services.worker.engine.torch.allocator import BlockAllocator
from services.worker.engine.torch.batch import Batch, Span
from services.worker.engine.torch.config import EngineConfig
from services.worker.engine.torch.kv_pool import KvPool
from services.worker.engine.torch.layout import layout_of
from services.worker.engine.torch.plan import plan
from services.worker.engine.torch.sampler import Choice
from services.worker.engine.torch.sequence import Sequence, State

_NOTHING_TO_WATCH_SECONDS = 1.0  # sleep of a loop without any request
_WARM_TOKENS = 64


class TorchEngine:
    """Implements services.worker.engine.protocol.Engine.

    Loads the model on construction. `memory` is the KV pool's buffer (see KvPool); None allocates one.
    A request is admitted when blocks for its whole life are free, in order of arrival; so nothing is ever preempted.
    An event may still arrive for a request that another thread aborts at that moment; blocks that it names are then
    the receiver's to free, as always.
    """

    def __init__(self, config: EngineConfig, memory: memoryview | None = None) -> None:
        torch.set_num_threads(config.threads)
        self._config = config
        self._layout = layout_of(config.model_path, config.dtype, config.block_size)
        self._pool = KvPool(self._layout, config.num_blocks, memory)
        self._allocator = BlockAllocator(config.num_blocks)
        self._eos = loader.eos_token_ids(config.model_path)
        self._model = loader.load(config.model_path, config.dtype)
        longest = self._model.config.max_position_embeddings
        if config.max_model_len > longest:
            raise ValueError(f"max_model_len is {config.max_model_len}: the model takes at most {longest} tokens")
        self._vocab_size: int = self._model.config.vocab_size
        self._wake = threading.Condition()  # guards all below
        self._sequences: dict[str, Sequence] = {}  # those that have not ended, in order of arrival
        self._to_free: list[list[int]] = []  # blocks of aborted sequences that the running step may still use
        self._stopping = False
        self._steps = 0
        self._failed_steps = 0
        self._sink: Sink = lambda _events: None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._fetchers = ThreadPoolExecutor(config.fetch_threads, thread_name_prefix="kv-fetch")
        self._warm_up()

    # -- what a worker asks -----------------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """How this engine's KV lies in memory."""
        return self._layout

    @property
    def num_blocks(self) -> int:
        """KV blocks in the pool."""
        return self._config.num_blocks

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The model's end-of-text tokens."""
        return self._eos

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""
        return self._vocab_size

    @property
    def steps(self) -> int:
        """Steps done since start, failed ones included."""
        return self._steps

    @property
    def failed_steps(self) -> int:
        """Steps that raised."""
        return self._failed_steps

    def start(self, sink: Sink) -> None:
        """Begin to run steps."""
        self._sink = sink
        self._thread.start()

    def stop(self) -> None:
        """End the loop, then whatever still runs, with EngineFailed; waits for fetches, then lets go of the memory."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._end_all()
        self._fetchers.shutdown(wait=True, cancel_futures=True)
        self._pool.release()

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; raises InvalidRequest, ContextTooLong, Saturated, or EngineFailed once stopped."""
        self._validate(request)
        with self._wake:
            if self._stopping:
                raise EngineFailed("the engine has stopped")
            if request.request_id in self._sequences:
                raise InvalidRequest(f"request id {request.request_id} is in use")
            if len(self._sequences) >= self._config.max_running + self._config.max_waiting:
                raise Saturated
            self._sequences[request.request_id] = Sequence.of(request)
            self._wake.notify()

    def abort(self, request_id: str) -> None:
        """End a request without further events."""
        with self._wake:
            sequence = self._sequences.pop(request_id, None)
            if sequence is not None:
                if sequence.state is State.RUNNING:
                    self._to_free.append(sequence.blocks)
                sequence.ended = True
                self._wake.notify()

    def free(self, block_ids: Seq[int]) -> None:
        """Give back blocks that an event handed over; raises ValueError for others."""
        self._allocator.free(block_ids)
        with self._wake:
            self._wake.notify()

    def load(self) -> Load:
        """What the engine holds now."""
        with self._wake:
            held = list(self._sequences.values())
            waiting = sum(s.state is State.WAITING for s in held)
            queued = sum(max(0, len(s.request.prompt) - max(s.computed, s.request.num_fetched)) for s in held)
            return Load(len(held) - waiting, waiting, queued, self._allocator.num_free, list(self._sequences))

    def _validate(self, request: EngineRequest) -> None:
        length = len(request.prompt)
        if length < 1 or request.max_tokens < 1:
            raise InvalidRequest("a request needs at least one prompt token and max_tokens of 1 or more")
        if min(request.prompt) < 0 or max(request.prompt) >= self._vocab_size:
            raise InvalidRequest(f"prompt: token ids must be from 0 to {self._vocab_size - 1}")
        if not 0 <= request.output_tokens <= length:
            raise InvalidRequest("output_tokens must be from 0 to the prompt's length")
        if not 0 <= request.num_fetched < length or (request.fetch is None) != (request.num_fetched == 0):
            raise InvalidRequest("num_fetched must be less than the prompt's length, and come with fetch")
        if length + request.max_tokens > self._config.max_model_len:
            raise ContextTooLong(
                f"{length} prompt tokens and max_tokens {request.max_tokens} exceed {self._config.max_model_len} tokens"
            )
        needed = Sequence.of(request).num_blocks(self._config.block_size)
        if needed > self._config.num_blocks:
            raise ContextTooLong(f"the request needs {needed} KV blocks; this worker has {self._config.num_blocks}")

    # -- the loop ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(self._config.threads)  # OpenMP counts per thread
        try:
            with torch.inference_mode():
                while self._turn():
                    pass
        finally:  # whatever ends the loop, nobody is left waiting
            with self._wake:
                self._stopping = True
            self._end_all()

    def _turn(self) -> bool:
        """Look after the requests, then compute one step or sleep. False: stop."""
        with self._wake:
            if self._stopping:
                return False
            while self._to_free:
                self._allocator.free(self._to_free.pop())
            expired = self._expire(time.monotonic())
            fetching = self._admit()
            running = [s for s in self._sequences.values() if s.state is State.RUNNING]
            spans = plan(running, self._config.prefill_max_batch_tokens)
            if not (expired or fetching or spans):
                nap = max(self._config.idle_wait_ms / 1000, 0.001) if self._sequences else _NOTHING_TO_WATCH_SECONDS
                self._wake.wait(nap)
        self._deliver(expired)
        for sequence in fetching:
            self._fetchers.submit(self._fetch, sequence)
        if spans:
            self._deliver(self._step(spans))
        return True

    def _expire(self, now: float) -> list[Event]:
        late = [s for s in self._sequences.values() if s.request.deadline <= now]
        return [self._fail(s, DeadlineExceeded("the request's deadline passed in the engine")) for s in late]

    def _admit(self) -> list[Sequence]:
        """Give blocks to waiting sequences, first come first served; those whose KV is to be fetched are returned."""
        slots = self._config.max_running - sum(s.state is not State.WAITING for s in self._sequences.values())
        fetching = []
        for sequence in [s for s in self._sequences.values() if s.state is State.WAITING][: max(slots, 0)]:
            blocks = self._allocator.allocate(sequence.num_blocks(self._config.block_size))
            if blocks is None:  # nobody overtakes: else a long request would wait for ever
                break
            sequence.blocks = blocks
            sequence.state = State.RUNNING if sequence.request.fetch is None else State.FETCHING
            if sequence.state is State.FETCHING:
                fetching.append(sequence)
        return fetching

    def _fetch(self, sequence: Sequence) -> None:
        """In a fetch thread: have the sequence's first blocks filled."""
        request = sequence.request
        blocks = sequence.blocks[: -(-request.num_fetched // self._config.block_size)]
        error: DiphaseError | None = None
        events = []
        try:
            assert request.fetch is not None
            request.fetch(list(blocks))
        except DiphaseError as raised:
            error = raised
        except Exception as raised:  # the caller's code: whatever it raises ends this request alone
            logs.get().exception("fetch failed", request_id=request.request_id)
            error = EngineFailed(f"fetching KV failed: {raised}")
        if error is not None:
            self._pool.scrub(blocks)
        with self._wake:
            sequence.state = State.RUNNING
            sequence.computed = request.num_fetched
            if sequence.ended:
                self._to_free.append(sequence.blocks)
            elif error is not None:
                events.append(self._fail(sequence, error))
            self._wake.notify()
        self._deliver(events)

    def _step(self, spans: list[Span]) -> list[Event]:
        try:
            batch = batching.build(spans, self._pool)
            logits = step.forward(self._model, batch)
            choices = step.choose(logits, [span.sequence for span in batch.spans if span.is_last])
        except Exception as error:  # whatever the model raises ends the requests of this step, not the loop
            logs.get().exception("step failed", request_ids=[span.sequence.request.request_id for span in spans])
            self._failed_steps += 1
            with self._wake:
                for span in spans:
                    self._pool.scrub(span.sequence.blocks)
                alive = [span.sequence for span in spans if not span.sequence.ended]
                return [self._fail(s, EngineFailed(f"the engine failed: {error}")) for s in alive]
        finally:
            self._steps += 1
        with self._wake:
            return self._advance(batch, choices)

    def _advance(self, batch: Batch, choices: list[Choice | None]) -> list[Event]:
        """Take a step's results into the sequences."""
        events = []
        chosen = iter(choices)
        for span in batch.spans:
            sequence, gives_token = span.sequence, span.is_last
            sequence.computed += span.count
            choice = next(chosen) if gives_token else None
            if sequence.ended or not gives_token:
                continue
            if choice is None:
                events.append(self._fail(sequence, EngineFailed("the model's logits are not finite"), scrub=True))
            else:
                events.append(self._take(sequence, choice))
        return events

    def _take(self, sequence: Sequence, choice: Choice) -> Event:
        sequence.append(choice.token)
        sampling = sequence.request.sampling
        event = Event(
            sequence.request.request_id, [choice.token], finish_reason=self._finish_reason(sequence, sampling)
        )
        if sampling.logprobs is not None:
            event.token_logprobs.append(choice.logprob)
            if sampling.logprobs:
                event.top_logprobs.append(choice.top)
        if event.finish_reason is not None:
            if sequence.request.keep_kv:
                used = -(-sequence.computed // self._config.block_size)
                event.kept_blocks, sequence.blocks = sequence.blocks[:used], sequence.blocks[used:]
                event.kept_tokens = sequence.computed
            self._drop(sequence)
        return event

    def _finish_reason(self, sequence: Sequence, sampling: Sampling) -> FinishReason | None:
        token = sequence.tokens[-1]
        if (token in self._eos and not sampling.ignore_eos) or token in sampling.stop_token_ids:
            return "stop"
        return "length" if sequence.generated >= sequence.request.max_tokens else None

    # -- ends -------------------------------------------------------------------------------------------------------

    def _fail(self, sequence: Sequence, error: DiphaseError, *, scrub: bool = False) -> Event:
        if scrub:
            self._pool.scrub(sequence.blocks)
        self._drop(sequence)
        return Event(sequence.request.request_id, error=error)

    def _drop(self, sequence: Sequence) -> None:
        """Forget a sequence and free its blocks; a fetch that writes into them frees them when it is over."""
        self._sequences.pop(sequence.request.request_id)
        sequence.ended = True
        if sequence.state is State.RUNNING:
            self._allocator.free(sequence.blocks)

    def _end_all(self) -> None:
        with self._wake:
            events = [self._fail(s, EngineFailed("the engine has stopped")) for s in list(self._sequences.values())]
        self._deliver(events)

    def _deliver(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            self._sink(events)
        except Exception:  # a fault of the receiver must not end the loop that serves everybody
            logs.get().exception("the receiver of events failed")

    def _warm_up(self) -> None:
        """Let oneDNN prepare its kernels, and a model that this engine cannot run fail now."""
        request = EngineRequest("warm-up", [0] * _WARM_TOKENS, 2, Sampling(temperature=0.0), deadline=0.0)
        sequences = [Sequence.of(replace(request, prompt=prompt)) for prompt in ([0], [0] * _WARM_TOKENS)]
        with torch.inference_mode():
            for sequence in sequences:
                sequence.blocks = list(range(self._config.num_blocks))[: sequence.num_blocks(self._config.block_size)]
            step.forward(self._model, batching.build([Span(s, s.pending) for s in sequences], self._pool))
            self._pool.scrub(sequences[1].blocks)
