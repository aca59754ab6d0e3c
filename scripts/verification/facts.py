"""What is known of a stack after it was tried: plain data, so that a run can be recorded and judged again."""

from __future__ import annotations

import msgspec


class Probe(msgspec.Struct):
    """One GET: its status, or none where nobody answered, and what was said."""

    status: int | None
    said: str = ""


class Role(msgspec.Struct):
    """A process of the stack.

    `workers` is what a scheduler knows: the state of each worker by its id. Where its port is not within reach, `live`
    is the number of live workers of each phase, by its metrics.
    """

    name: str
    url: str
    health: Probe
    ready: Probe
    workers: dict[str, str] | None = None
    live: dict[str, int] | None = None


class Certificate(msgspec.Struct):
    """What the gateway's TLS says; `fault` is why it is not to be trusted."""

    days_left: float | None = None
    fault: str = ""


class Answer(msgspec.Struct):
    """A request as its client saw it. Times in seconds since it was sent; `first_at` is of the first text."""

    prompt: str
    streamed: bool
    status: int | None
    error: str = ""
    text: str = ""
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    max_tokens: int = 0
    first_at: float | None = None
    last_at: float | None = None
    ended: bool = True  # a stream that ended with data: [DONE]


class Refusal(msgspec.Struct):
    """A request that must be refused."""

    request: str
    want: int
    status: int | None
    said: str = ""


class Facts(msgspec.Struct):
    """One run."""

    stack: str
    gateway: str
    roles: list[Role] = []
    certificate: Certificate | None = None  # none: plain HTTP
    models: list[str] = []
    models_said: str = ""
    answers: list[Answer] = []
    refusals: list[Refusal] = []
    before: dict[str, dict[str, float]] = {}  # a worker's name → its samples
    after: dict[str, dict[str, float]] = {}


class Objectives(msgspec.Struct, frozen=True):
    """What the stack promises its clients."""

    ttft_seconds: float = 2.0
    ttft_tokens: int = 512  # it is promised for prompts up to this length; a longer one that is late is only noticed
    decode_tokens_per_second: float = 5.0  # about the pace of a reader
