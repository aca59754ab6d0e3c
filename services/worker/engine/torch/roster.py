"""The requests that an engine holds and the blocks they own: pure, guarded by the engine's lock."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from services.common.errors import ContextTooLong, InvalidRequest, Saturated
from services.common.wire import Load
from services.worker.engine.protocol import EngineRequest
from services.worker.engine.torch.allocator import BlockAllocator
from services.worker.engine.torch.config import EngineConfig
from services.worker.engine.torch.sequence import Sequence, State


class Roster:
    """Sequences that have not ended, in order of arrival.

    A sequence is admitted when blocks for its whole life are free; so nothing is ever preempted.
    """

    def __init__(self, config: EngineConfig, vocab_size: int) -> None:
        self._config = config
        self._vocab_size = vocab_size
        self._allocator = BlockAllocator(config.num_blocks)
        self._sequences: dict[str, Sequence] = {}
        self._in_use: list[list[int]] = []  # blocks of aborted sequences that the running step may still use

    def __len__(self) -> int:
        return len(self._sequences)

    def validate(self, request: EngineRequest) -> None:
        """Raises InvalidRequest, or ContextTooLong for what can never fit."""
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

    def add(self, request: EngineRequest) -> None:
        """Let a valid request wait; raises Saturated, or InvalidRequest for an id that is in use."""
        if request.request_id in self._sequences:
            raise InvalidRequest(f"request id {request.request_id} is in use")
        if len(self) >= self._config.max_running + self._config.max_waiting:
            raise Saturated
        self._sequences[request.request_id] = Sequence.of(request)

    def admit(self) -> list[Sequence]:
        """Give blocks to those that wait, first come first served; returns the newcomers whose KV is to be fetched."""
        waiting = [s for s in self._sequences.values() if s.state is State.WAITING]
        places = self._config.max_running - (len(self) - len(waiting))
        fetching = []
        for sequence in waiting[: max(places, 0)]:
            blocks = self._allocator.allocate(sequence.num_blocks(self._config.block_size))
            if blocks is None:  # nobody overtakes: else a long request would wait for ever
                break
            sequence.blocks = blocks
            sequence.state = State.RUNNING if sequence.request.fetch is None else State.FETCHING
            if sequence.state is State.FETCHING:
                fetching.append(sequence)
        return fetching

    def running(self) -> list[Sequence]:
        """Those that the next step may compute."""
        return [s for s in self._sequences.values() if s.state is State.RUNNING]

    def late(self, now: float) -> list[Sequence]:
        """Those whose deadline has passed."""
        return [s for s in self._sequences.values() if s.request.deadline <= now]

    def everyone(self) -> list[Sequence]:
        """All of them."""
        return list(self._sequences.values())

    def drop(self, sequence: Sequence) -> None:
        """Forget a sequence between steps and free its blocks, unless a fetch still writes: then see `fetched`."""
        self._sequences.pop(sequence.request.request_id)
        sequence.ended = True
        if sequence.state is State.RUNNING:
            self._allocator.free(sequence.blocks)

    def abort(self, request_id: str) -> None:
        """Forget a sequence at any time; its blocks are freed by `between_steps`. Unknown ids are ignored."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is not None:
            sequence.ended = True
            if sequence.state is State.RUNNING:
                self._in_use.append(sequence.blocks)

    def fetched(self, sequence: Sequence) -> None:
        """A fetch is over, well or not: the sequence may run; where it has ended meanwhile, its blocks are free."""
        sequence.state = State.RUNNING
        sequence.computed = sequence.request.num_fetched
        if sequence.ended:
            self._allocator.free(sequence.blocks)

    def between_steps(self) -> None:
        """No step uses any block now."""
        while self._in_use:
            self._allocator.free(self._in_use.pop())

    def free(self, blocks: Seq[int]) -> None:
        """Take back blocks that were kept; raises ValueError for blocks that nobody owns."""
        self._allocator.free(blocks)

    def load(self) -> Load:
        """What is held now; the prompt tokens of a fetch do not count as queued."""
        held = self.everyone()
        waiting = sum(s.state is State.WAITING for s in held)
        queued = sum(max(0, len(s.request.prompt) - max(s.computed, s.request.num_fetched)) for s in held)
        return Load(len(held) - waiting, waiting, queued, self._allocator.num_free, list(self._sequences))
