"""A validated request, as its life needs it, and the headers that mark all its legs."""

from __future__ import annotations

import re
import secrets
import uuid
from dataclasses import dataclass

from services.common.errors import InvalidRequest
from services.common.wire import CompletionRequest, KvTransferParams
from services.gateway.validation import Parameters

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Job:
    """One request. `deadline` is of the event loop's clock; `seed` is the client's, or one drawn for this request.

    `internal_id` names it to schedulers and workers. It is the request id unless two clients, or one that tries again,
    send the same: slots and leases are released by it.
    """

    request_id: str
    internal_id: str
    traceparent: str
    model: str
    prompt: list[int]
    parameters: Parameters
    max_tokens: int
    seed: int
    deadline: float

    def leg(
        self, output: list[int], max_tokens: int, timeout: float, kv: KvTransferParams | None, *, stream: bool
    ) -> CompletionRequest:
        """What a worker is asked, with the answer's tokens so far at the prompt's end."""
        parameters = self.parameters
        return CompletionRequest(
            model=self.model,
            prompt=self.prompt + output if output else self.prompt,
            max_tokens=max_tokens,
            stream=stream,
            temperature=parameters.temperature,
            top_p=parameters.top_p,
            top_k=parameters.top_k,
            seed=self.seed,
            frequency_penalty=parameters.frequency_penalty,
            presence_penalty=parameters.presence_penalty,
            logprobs=parameters.logprobs,
            ignore_eos=parameters.ignore_eos,
            kv_transfer_params=kv,
            output_tokens=len(output),
            timeout=timeout,
        )


def request_id(header: str | None) -> str:
    """The client's id, or a new one; raises InvalidRequest for one that is not well formed."""
    if header is None:
        return f"req-{uuid.uuid4().hex}"
    if not _REQUEST_ID.fullmatch(header):
        raise InvalidRequest(
            "X-Request-Id takes 1 to 100 letters, digits and ._:- : change it or leave it out", param="X-Request-Id"
        )
    return header


class InternalIds:
    """Gives each request its id for schedulers and workers: its own, with an addition if this one was used lately."""

    def __init__(self, remembered: int = 10_000) -> None:
        self._remembered = remembered
        self._seen: dict[str, None] = {}  # in order of use

    def take(self, request_id: str) -> str:
        """An id that no request of this gateway had lately, whose late releases could hit the new one."""
        if request_id in self._seen:
            return f"{request_id}.{secrets.token_hex(4)}"
        self._seen[request_id] = None
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]
        return request_id


def traceparent(header: str | None) -> str:
    """The client's trace context, or a new one where there is none that is valid."""
    if header is not None and _TRACEPARENT.fullmatch(header):
        return header
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


def draw_seed() -> int:
    """A seed for a request without one: with it, whichever worker goes on continues the same answer."""
    return secrets.randbits(63)
