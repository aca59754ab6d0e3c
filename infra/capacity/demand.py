"""What is asked of a stack: its traffic and its objectives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Requests that come at random (Poisson), with prompts and answers of about so many tokens."""

    prompt_tokens: int
    answer_tokens: int
    requests_per_second: float

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.answer_tokens < 1 or self.requests_per_second <= 0:
            raise ValueError(f"{self}: prompts and answers have a token or more, and requests come")

    @property
    def tokens(self) -> int:
        """Of a request, when its answer is whole."""
        return self.prompt_tokens + self.answer_tokens

    @property
    def mean_context(self) -> float:
        """Tokens of a request in the middle of its answer."""
        return self.prompt_tokens + self.answer_tokens / 2


@dataclass(frozen=True)
class Goals:
    """Objectives. `share` of all requests see their first token within `ttft_seconds`.

    `busy` is how much of a phase's capacity is planned for; `spare` replicas of each phase may be lost beyond that.
    """

    ttft_seconds: float = 2.0
    tpot_seconds: float = 0.05
    share: float = 0.95
    busy: float = 0.8
    spare: int = 1

    def __post_init__(self) -> None:
        if not (self.ttft_seconds > 0 and self.tpot_seconds > 0 and 0 < self.share < 1 and 0 < self.busy < 1):
            raise ValueError(f"{self}: seconds are above 0, share and busy between 0 and 1")
        if self.spare < 0:
            raise ValueError(f"spare is {self.spare}; it is 0 or more replicas")
