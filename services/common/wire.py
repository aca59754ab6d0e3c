"""What passes between roles, as msgspec structs: heartbeats, placements, the completions protocol, the KV handle.

The completions protocol is the subset of vLLM's OpenAI server that its disaggregated serving uses (token-id prompts,
`return_token_ids`, `kv_transfer_params`); fields after the comment "Diphase" are ours and optional.
Times on the wire are seconds; those called `expires_at` are Unix times.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import xxhash

Phase = Literal["prefill", "decode"]
FinishReason = Literal["stop", "length", "abort"]


class Layout(msgspec.Struct, frozen=True):
    """How KV lies in memory; two workers exchange KV only if all of it is equal."""

    dtype: str
    block_size: int
    layers: int
    kv_heads: int
    head_dim: int
    tp_size: int = 1

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that stand for the layout."""
        return str(xxhash.xxh3_64_hexdigest(msgspec.json.encode(self)))

    def difference(self, other: Layout) -> str:
        """The fields in which two layouts differ, for a person; empty where they are equal."""
        names = (name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name))
        return ", ".join(f"{name} {getattr(self, name)} and {getattr(other, name)}" for name in names)


# -- worker → scheduler ---------------------------------------------------------------------------------------------


class Capacity(msgspec.Struct, frozen=True):
    """What a worker can hold; fixed while it lives."""

    max_running: int
    max_waiting: int
    max_model_len: int
    kv_blocks: int


class Load(msgspec.Struct):
    """What a worker holds now."""

    running: int = 0
    waiting: int = 0
    queued_tokens: int = 0  # prompt tokens not computed yet
    kv_blocks_free: int = 0
    active: list[str] = []  # ids of the requests that run or wait here, so that a scheduler knows what it already sees


class Heartbeat(msgspec.Struct):
    """POST /v1/heartbeat, to every scheduler replica, twice a second; the first one registers the worker."""

    worker_id: str
    engine_id: str  # new at each boot
    phase: Phase
    url: str
    model: str
    revision: str
    layout: Layout
    capacity: Capacity
    load: Load
    sequence: int
    draining: bool = False
    hands_over_first_token: bool = True


class HeartbeatAnswer(msgspec.Struct):
    """Answer to a heartbeat: whether a worker of the other phase lives that the sender exchanges KV with."""

    paired: bool = True


# -- gateway → scheduler --------------------------------------------------------------------------------------------


class PlaceRequest(msgspec.Struct, omit_defaults=True):
    """POST /v1/place: wait for a worker of a phase; answered by Placement, or 429, 503, 504."""

    request_id: str
    phase: Phase
    model: str
    prompt_tokens: int
    max_tokens: int
    timeout: float  # seconds until the request's deadline
    exclude: list[str] = []  # engine ids that failed this request already
    revision: str | None = None  # the pair must be equal in both
    layout: str | None = None
    must_wait: bool = False  # a stream that has begun: wait for a worker even if none has been seen for long


class Placement(msgspec.Struct):
    """The worker that was chosen; its slot is taken until released or until the worker reports the request gone."""

    worker_id: str
    engine_id: str
    url: str
    revision: str
    layout: str
    hands_over_first_token: bool = True


class ReleaseRequest(msgspec.Struct):
    """POST /v1/release: the request no longer uses its slot in this phase; idempotent."""

    request_id: str
    phase: Phase


# -- KV -------------------------------------------------------------------------------------------------------------


class KvTransferParams(msgspec.Struct, omit_defaults=True, kw_only=True):
    """vLLM's `kv_transfer_params`; as an answer of prefill it is the KV handle.

    Asked of prefill: `do_remote_decode`. Answered by prefill and passed to decode: `do_remote_prefill` and the rest.
    """

    do_remote_decode: bool = False
    do_remote_prefill: bool = False
    remote_engine_id: str | None = None
    remote_block_ids: list[int] | None = None
    remote_request_id: str | None = None
    remote_host: str | None = None
    remote_port: int | None = None
    tp_size: int = 1
    # Diphase: the lease
    remote_socket: str | None = None  # Unix socket of the shared-memory server
    nonce: str | None = None  # generation of the lease: stale references never match
    model: str | None = None
    revision: str | None = None
    layout: str | None = None  # fingerprint
    num_tokens: int = 0  # tokens whose KV the blocks hold, from the first of the prompt
    tokens_checksum: str | None = None  # of those token ids
    kv_checksum: str | None = None  # of the blocks' bytes, see services.kv.checksum
    lease_url: str | None = None  # the worker's base URL: POST {lease_url}/v1/kv/renew and /v1/kv/release
    expires_at: float = 0.0


class LeaseRequest(msgspec.Struct, omit_defaults=True):
    """POST /v1/kv/renew and /v1/kv/release at the worker that keeps the blocks.

    Release without a nonce releases whatever the request id holds: for gateways that hung up before they learned it.
    """

    request_id: str
    nonce: str | None = None


class LeaseAnswer(msgspec.Struct):
    """Answer of renew: when the lease ends now."""

    expires_at: float


# -- gateway → worker -----------------------------------------------------------------------------------------------


class CompletionRequest(msgspec.Struct, omit_defaults=True, kw_only=True):
    """POST /v1/completions at a worker. The request id comes in the header X-Request-Id."""

    model: str
    prompt: list[int]
    max_tokens: int
    stream: bool = False
    return_token_ids: bool = True
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logprobs: int | None = None  # 0 gives the sampled token's own; n gives the n likeliest too
    return_tokens_as_token_ids: bool = True  # logprobs name tokens as "token_id:17"
    stop_token_ids: list[int] = []  # besides the model's own end-of-text tokens
    ignore_eos: bool = False
    kv_transfer_params: KvTransferParams | None = None
    # Diphase
    output_tokens: int = 0  # how many tokens at the prompt's end are already part of the answer (for penalties)
    timeout: float | None = None  # seconds until the request's deadline


class Logprobs(msgspec.Struct, omit_defaults=True):
    """One entry for each token of the event, in order."""

    tokens: list[str] = []
    token_logprobs: list[float] = []
    top_logprobs: list[dict[str, float]] = []


class Choice(msgspec.Struct, omit_defaults=True):
    """The one choice; `token_ids` are new since the last event."""

    index: int = 0
    text: str = ""
    token_ids: list[int] = []
    logprobs: Logprobs | None = None
    finish_reason: FinishReason | None = None


class PromptDetails(msgspec.Struct):
    """Part of the usage."""

    cached_tokens: int = 0


class Usage(msgspec.Struct, omit_defaults=True):
    """OpenAI's usage."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | None = None


class CompletionResponse(msgspec.Struct, omit_defaults=True):
    """The answer, and each event of a stream (`data: {…}`, ended by `data: [DONE]`).

    An error inside a stream is an event `data: {"error": {…}}` after which the stream ends.
    """

    id: str
    model: str
    choices: list[Choice]
    object: str = "text_completion"
    created: int = 0
    usage: Usage | None = None
    kv_transfer_params: KvTransferParams | None = None
