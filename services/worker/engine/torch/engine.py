"""The torch engine: requests come in from any thread, one loop computes steps for all that run, events go out."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor

import torch

from services.common import logs
from services.common.errors import (
    DeadlineExceeded,
    DiphaseError,
    EngineFailed,
)
from services.common.wire import FinishReason, Layout, Load
from services.worker.engine.protocol import EngineRequest, Event, Sampling, Sink
from services.worker.engine.torch import batch as batching
from services.worker.engine.torch import loader, step
from services.worker.engine.torch.batch import Batch, Span
from services.worker.engine.torch.config import EngineConfig
from services.worker.engine.torch.kv_pool import KvPool
from services.worker.engine.torch.layout import layout_of
from services.worker.engine.torch.native import compiler
from services.worker.engine.torch.plan import plan
from services.worker.engine.torch.roster import Roster
from services.worker.engine.torch.sampler import Choice
from services.worker.engine.torch.sequence import Sequence

_NOTHING_TO_WATCH_SECONDS = 1.0  # sleep of a loop without any request
_FAULTY_STEPS = 5  # so many that raise one after the other are the device's fault, not a request's


class TorchEngine:
    """Implements services.worker.engine.protocol.Engine.

    Loads the model on construction. `memory` is the KV pool's buffer (see KvPool); None allocates one.
    An event may still arrive for a request that another thread aborts at that moment; blocks that it names are then
    the receiver's to free, as always.
    """

    def __init__(self, config: EngineConfig, memory: memoryview | None = None) -> None:
        torch.set_num_threads(config.threads)
        self._config = config
        self._layout = layout_of(config.model_path, config.dtype, config.block_size)
        self._pool = KvPool(self._layout, config.num_blocks, memory)
        self._eos = loader.eos_token_ids(config.model_path)
        library = compiler.load(config.native_folder)
        self._model = loader.load(config.model_path, config.dtype, library, config.threads)
        longest = self._model.max_positions
        if config.max_model_len > longest:
            raise ValueError(f"max_model_len is {config.max_model_len}: the model takes at most {longest} tokens")
        self._pool.use_native(library, self._model.heads, config.threads)
        self._vocab_size = self._model.vocab_size
        self._wake = threading.Condition()  # guards all below
        self._roster = Roster(config, self._vocab_size)
        self._stopping = False
        self._steps = 0
        self._busy_seconds = 0.0
        self._failed_steps = 0
        self._failed_in_a_row = 0
        self._sink: Sink = lambda _events: None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._fetchers = ThreadPoolExecutor(config.fetch_threads, thread_name_prefix="kv-fetch")
        step.warm_up(self._model, self._pool)

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
    def busy_seconds(self) -> float:
        """Time spent in steps since start."""
        return self._busy_seconds

    @property
    def failed_steps(self) -> int:
        """Steps that raised."""
        return self._failed_steps

    @property
    def ended(self) -> bool:
        """Whether the loop was started and runs no more."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def fault(self) -> str | None:
        """What is wrong if the last steps all raised, or the loop has ended."""
        if self.ended:
            return "the engine's loop has ended"
        failed = self._failed_in_a_row
        return f"the engine's last {failed} steps failed" if failed >= _FAULTY_STEPS else None

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
        self._roster.validate(request)
        with self._wake:
            if self._stopping:
                raise EngineFailed("the engine has stopped")
            self._roster.add(request)
            self._wake.notify()

    def abort(self, request_id: str) -> None:
        """End a request without further events."""
        with self._wake:
            self._roster.abort(request_id)
            self._wake.notify()

    def free(self, block_ids: Seq[int]) -> None:
        """Give back blocks that an event handed over; raises ValueError for others."""
        with self._wake:
            self._roster.free(block_ids)
            self._wake.notify()

    def load(self) -> Load:
        """What the engine holds now."""
        with self._wake:
            return self._roster.load()

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
            self._roster.between_steps()
            expired = [
                self._fail(sequence, DeadlineExceeded("the request's deadline passed in the engine"))
                for sequence in self._roster.late(time.monotonic())
            ]
            fetching = self._roster.admit()
            spans = plan(self._roster.running(), self._config.prefill_max_batch_tokens)
            if not (expired or fetching or spans):
                nap = max(self._config.idle_wait_ms / 1000, 0.001) if self._roster else _NOTHING_TO_WATCH_SECONDS
                self._wake.wait(nap)
        self._deliver(expired)
        for sequence in fetching:
            self._fetchers.submit(self._fetch, sequence)
        if spans:
            started = time.monotonic()
            events = self._step(spans)
            self._busy_seconds += time.monotonic() - started
            self._deliver(events)
        return True

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
            self._roster.fetched(sequence)
            if error is not None and not sequence.ended:
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
            self._failed_in_a_row += 1
            with self._wake:
                for span in spans:
                    self._pool.scrub(span.sequence.blocks)
                alive = [span.sequence for span in spans if not span.sequence.ended]
                return [self._fail(s, EngineFailed(f"the engine failed: {error}")) for s in alive]
        finally:
            self._steps += 1
        self._failed_in_a_row = 0
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
            if gives_token and choice is None:
                self._pool.scrub(sequence.blocks)
            if sequence.ended or not gives_token:
                continue
            if choice is None:
                events.append(self._fail(sequence, EngineFailed("the model's logits are not finite")))
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
            self._roster.drop(sequence)
        return event

    def _finish_reason(self, sequence: Sequence, sampling: Sampling) -> FinishReason | None:
        token = sequence.tokens[-1]
        if (token in self._eos and not sampling.ignore_eos) or token in sampling.stop_token_ids:
            return "stop"
        return "length" if sequence.generated >= sequence.request.max_tokens else None

    # -- ends -------------------------------------------------------------------------------------------------------

    def _fail(self, sequence: Sequence, error: DiphaseError) -> Event:
        self._roster.drop(sequence)
        return Event(sequence.request.request_id, error=error)

    def _end_all(self) -> None:
        with self._wake:
            events = [self._fail(s, EngineFailed("the engine has stopped")) for s in self._roster.everyone()]
        self._deliver(events)

    def _deliver(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            self._sink(events)
        except Exception:  # a fault of the receiver must not end the loop that serves everybody
            logs.get().exception("the receiver of events failed")
