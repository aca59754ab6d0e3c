"""A worker without a model: it speaks the protocol over real sockets, writes a fixed text, and fails on demand.

The n-th token of an answer is always the same, so whoever continues an answer continues this one. A double refuses a
prompt whose end is not what the answer was so far: a token lost or sent twice shows at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from services.common.errors import Draining, EngineFailed, InvalidRequest, KvUnavailable, Saturated
from services.common.http_client import HttpClient
from services.common.http_server import App, Request, Response, Stream, json_response
from services.common.tls import Certificates
from services.common.wire import (
    Capacity,
    Choice,
    CompletionRequest,
    CompletionResponse,
    Heartbeat,
    KvTransferParams,
    Layout,
    LeaseAnswer,
    LeaseRequest,
    Load,
    Logprobs,
    Phase,
    PromptDetails,
    Usage,
)
from tests.services.common.serving import Served, serving

LAYOUT = Layout("float32", 64, 30, 3, 64)
LEASE_SECONDS = 0.9
BEAT_SECONDS = 0.1
REFUSALS = {
    "saturated": lambda: Saturated(),
    "draining": lambda: Draining("draining: ask another"),
    "engine_failed": lambda: EngineFailed("the engine raised"),
    "kv_unavailable": lambda: KvUnavailable("the lease is gone"),
    "refuse": lambda: InvalidRequest("the worker does not like it", param="prompt"),
}


@dataclass
class Visit:
    """One request at the double."""

    request_id: str
    body: CompletionRequest
    traceparent: str | None
    gone_at: float | None = None  # the client hung up before the end
    done: bool = False


@dataclass
class Double:
    """One worker. `faults` are used up, one a request: a key of REFUSALS, or cut, error, abort or stall, with :n for
    after n tokens, or hang (never answers).
    """

    phase: Phase
    answer: list[int]
    schedulers: list[str]
    model: str
    worker_id: str
    hands_over_first_token: bool = True
    pause: float = 0.0  # seconds before each token of a stream
    max_running: int = 8
    revision: str = "r1"
    draining: bool = False
    tls: Certificates | None = None
    ends_with: str = "stop"
    faults: deque[str] = field(default_factory=deque)
    visits: list[Visit] = field(default_factory=list)
    leases: dict[str, str] = field(default_factory=dict)  # request id → nonce
    renewals: int = 0
    releases: int = 0
    engine_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    server: Served | None = None
    keep_lease: bool = True  # False: the lease is gone as soon as it is granted

    @property
    def running(self) -> list[Visit]:
        return [visit for visit in self.visits if not visit.done]

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[Double]:
        app = App()
        app.route("POST", "/v1/completions", self._post)
        app.route("POST", "/v1/kv/renew", self._renew)
        app.route("POST", "/v1/kv/release", self._release)
        client = HttpClient(certificates=self.tls)
        async with serving(app, tls=self.tls) as self.server:
            beats = asyncio.create_task(self._beat(client))
            try:
                await asyncio.sleep(0)
                yield self
            finally:
                beats.cancel()
                await client.close()

    def die(self) -> None:
        """As if killed."""
        assert self.server is not None
        self.server.cut()

    async def _beat(self, client: HttpClient) -> None:
        for sequence in range(1, 1_000_000):
            assert self.server is not None
            if self.server.should_exit:
                return
            load = Load(len(self.running), kv_blocks_free=1000, active=[visit.request_id for visit in self.running])
            beat = Heartbeat(
                self.worker_id, self.engine_id, self.phase, self.server.url, self.model, self.revision, LAYOUT,
                Capacity(self.max_running, 0, 8192, 1000), load, sequence,
                draining=self.draining, hands_over_first_token=self.hands_over_first_token,
            )  # fmt: skip
            body = msgspec.json.encode(beat)
            for url in self.schedulers:
                with contextlib.suppress(Exception):
                    await client.request("POST", f"{url}/v1/heartbeat", body, timeout=1.0)
            await asyncio.sleep(BEAT_SECONDS)

    async def _renew(self, request: Request) -> Response:
        body = await request.json(LeaseRequest)
        if self.leases.get(body.request_id) != body.nonce:
            raise KvUnavailable("no such lease")
        self.renewals += 1
        return json_response(LeaseAnswer(time.time() + LEASE_SECONDS))

    async def _release(self, request: Request) -> Response:
        body = await request.json(LeaseRequest)
        self.releases += 1
        if body.nonce in (None, self.leases.get(body.request_id)):
            self.leases.pop(body.request_id, None)
        return json_response({})

    async def _post(self, request: Request) -> Response | Stream:
        body = await request.json(CompletionRequest)
        visit = Visit(request.header("x-request-id") or "", body, request.header("traceparent"))
        self.visits.append(visit)
        fault = self.faults.popleft() if self.faults else ""
        try:
            if fault in REFUSALS:
                raise REFUSALS[fault]()
            if fault == "hang":
                await asyncio.sleep(60)
            if fault == "cut":
                self._cut_all()
            self._check(body)
            if not body.stream:
                await asyncio.sleep(self.pause)
                return json_response(self._prefill(visit))
            return Stream(self._decode(visit, fault))
        except asyncio.CancelledError:
            visit.gone_at = time.monotonic()
            raise
        finally:
            visit.done = visit.done or not body.stream or visit.gone_at is not None or fault in REFUSALS

    def _cut_all(self) -> None:
        assert self.server is not None
        for connection in list(self.server.server_state.connections):
            connection.transport.abort()

    def _check(self, body: CompletionRequest) -> None:
        so_far = self.answer[: body.output_tokens]
        if body.prompt[len(body.prompt) - body.output_tokens :] != so_far:
            raise InvalidRequest(f"the answer so far is not {so_far}")

    def _prefill(self, visit: Visit) -> CompletionResponse:
        body = visit.body
        token = self.answer[body.output_tokens]
        finish = "stop" if body.output_tokens == len(self.answer) - 1 and self.ends_with == "stop" else "length"
        params = None
        if finish == "length":
            nonce = uuid.uuid4().hex
            if self.keep_lease:
                self.leases[visit.request_id] = nonce
            assert self.server is not None
            params = KvTransferParams(
                remote_engine_id=self.engine_id, remote_request_id=visit.request_id, nonce=nonce,
                num_tokens=len(body.prompt), lease_url=self.server.url, expires_at=time.time() + LEASE_SECONDS,
            )  # fmt: skip
        prompt = len(body.prompt)
        return CompletionResponse(
            visit.request_id, self.model,
            [Choice(token_ids=[token], finish_reason=finish, logprobs=_logprobs(body, [token]))],
            usage=Usage(prompt, 1, prompt + 1, PromptDetails(cached_tokens=3)), kv_transfer_params=params,
        )  # fmt: skip

    async def _decode(self, visit: Visit, fault: str) -> AsyncIterator[bytes]:
        kind, _, after = fault.partition(":")
        body = visit.body
        try:
            for sent, token in enumerate(self.answer[body.output_tokens : body.output_tokens + body.max_tokens]):
                await asyncio.sleep(self.pause)
                if kind and sent == int(after or 0):
                    if kind == "cut":
                        self._cut_all()
                    if kind == "stall":
                        await asyncio.sleep(60)
                    if kind == "error":
                        yield b"data: " + EngineFailed("the engine raised").body() + b"\n\n"
                        return
                    if kind == "abort":
                        yield _event(visit.request_id, self.model, Choice(finish_reason="abort"))
                        return
                at_end = body.output_tokens + sent + 1 == len(self.answer)
                finish = "length" if sent + 1 == body.max_tokens else None
                if at_end and self.ends_with == "stop":
                    finish = "stop"
                yield _event(
                    visit.request_id, self.model,
                    Choice(token_ids=[token], finish_reason=finish, logprobs=_logprobs(body, [token])),
                )  # fmt: skip
            yield b"data: [DONE]\n\n"
        except (asyncio.CancelledError, GeneratorExit):
            visit.gone_at = time.monotonic()
            raise
        finally:
            visit.done = True


def _event(request_id: str, model: str, choice: Choice) -> bytes:
    return b"data: " + msgspec.json.encode(CompletionResponse(request_id, model, [choice])) + b"\n\n"


def _logprobs(body: CompletionRequest, tokens: list[int]) -> Logprobs | None:
    if body.logprobs is None:
        return None
    names = [f"token_id:{token}" for token in tokens]
    tops = [{name: -0.5, "token_id:999": -1.5} for name in names] if body.logprobs else []
    return Logprobs(names, [-0.5] * len(tokens), tops)
