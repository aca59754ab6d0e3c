"""One request while the engine holds it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto

from services.worker.engine.protocol import EngineRequest


class State(Enum):
    """Where a sequence is. It owns blocks once it has left the first."""

    WAITING = auto()
    FETCHING = auto()  # a thread writes into its blocks
    RUNNING = auto()


@dataclass(slots=True, eq=False)
class Sequence:
    """The tokens of a request and how many of them have their KV in `blocks`."""

    request: EngineRequest
    tokens: list[int]
    answer: Counter[int]  # how often each token occurs in the answer so far, for the penalties
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    state: State = State.WAITING
    ended: bool = False  # its last event is out, or it was aborted; only the blocks are still to be freed

    @classmethod
    def of(cls, request: EngineRequest) -> Sequence:
        """A sequence at its start."""
        tokens = list(request.prompt)
        return cls(request, tokens, Counter(tokens[len(tokens) - request.output_tokens :]))

    @property
    def generated(self) -> int:
        """Tokens of the answer that this engine made."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def pending(self) -> int:
        """Tokens whose KV is still to be computed; one, when the next step gives one token."""
        return len(self.tokens) - self.computed

    def append(self, token: int) -> None:
        """Take the next token of the answer."""
        self.tokens.append(token)
        self.answer[token] += 1

    def num_blocks(self, block_size: int) -> int:
        """Blocks for the whole life of the sequence; the last token's KV is never computed."""
        return -(-(len(self.request.prompt) + self.request.max_tokens - 1) // block_size)
