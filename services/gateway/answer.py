"""Puts the answer together from a worker's steps: detokenised, cut at stop strings, logprobs beside their text."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.common.wire import Logprobs
from services.gateway.detokenizer import Detokenizer, StopStrings
from services.gateway.tokenization import Tokenization
from services.gateway.upstream import Step

LOWEST = -9999.0  # stands for a probability of zero, whose logarithm JSON cannot write


@dataclass(slots=True)
class TokenLogprob:
    """One token of the answer; `offset` is where its text begins, in characters."""

    token_id: int
    offset: int
    logprob: float
    top: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True)
class Piece:
    """What can be shown of the answer with one step; the ids are those taken in, their text may come later."""

    text: str
    logprobs: list[TokenLogprob]
    token_ids: list[int] = field(default_factory=list)


class Answer:
    """One answer. `finish_reason` is None until it is whole; `tokens` counts what was generated for it."""

    def __init__(self, tokenization: Tokenization, stop: tuple[str, ...]) -> None:
        self._detokenizer = Detokenizer(tokenization.tokenizer)
        self._special_ids = tokenization.special_ids
        self._stops = StopStrings(stop)
        self._decoded = self._given = 0  # characters
        self._waiting: list[TokenLogprob] = []  # their text is not given out yet
        self.tokens = 0
        self.finish_reason: str | None = None

    @property
    def stopped_early(self) -> bool:
        """A stop string was found, so what the worker would send now is not wanted."""
        return self._stops.found

    def feed(self, step: Step) -> Piece:
        """Take a step in; returns what it adds. Nothing is added once the answer is whole."""
        if self.finish_reason is not None:
            return Piece("", [])
        text, before = "", self.tokens
        for index, token_id in enumerate(step.token_ids):
            self.tokens += 1
            if step.logprobs is not None and token_id not in self._special_ids:
                self._waiting.append(_entry(token_id, self._decoded, step.logprobs, index))
            text += self._add(self._detokenizer.feed(token_id))
            if self._stops.found:
                break
        if step.finish_reason is not None and not self._stops.found:
            text += self._add(self._detokenizer.flush())
            if not self._stops.found:
                text += self._stops.flush()
                self.finish_reason = step.finish_reason
        if self._stops.found:
            self.finish_reason = "stop"
        self._given += len(text)
        return Piece(text, self._shown() if self._waiting else [], step.token_ids[: self.tokens - before])

    def _add(self, piece: str) -> str:
        self._decoded += len(piece)
        return self._stops.feed(piece)

    def _shown(self) -> list[TokenLogprob]:
        """The logprobs whose text has begun to be given out; at a natural end all of them."""
        if self.finish_reason is not None and not self._stops.found:
            count = len(self._waiting)
        else:
            count = sum(entry.offset < self._given for entry in self._waiting)
        shown, self._waiting = self._waiting[:count], self._waiting[count:]
        return shown


def _entry(token_id: int, offset: int, logprobs: Logprobs, index: int) -> TokenLogprob:
    logprob = logprobs.token_logprobs[index] if index < len(logprobs.token_logprobs) else LOWEST
    top = logprobs.top_logprobs[index] if index < len(logprobs.top_logprobs) else {}
    return TokenLogprob(
        token_id,
        offset,
        max(LOWEST, logprob),
        [(int(name.removeprefix("token_id:")), max(LOWEST, value)) for name, value in top.items()],
    )
