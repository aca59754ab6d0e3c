"""POST /v1/completions at a worker: the two legs of a request, and whole ones.

A prefill leg (`do_remote_decode`) computes the prompt, answers the first token and leaves the KV under a lease. A
decode leg (`do_remote_prefill`) pulls that KV and streams the rest. A request without `kv_transfer_params` does both.
"""

from __future__ import annotations

import re
import time
import uuid
from contextlib import ExitStack

import msgspec

from services.common import logs
from services.common.errors import ContextTooLong, Draining, InvalidRequest, ModelNotFound
from services.common.http_server import Request, Response, Stream, json_response
from services.common.settings import WorkerSettings
from services.common.wire import (
    Choice,
    CompletionRequest,
    CompletionResponse,
    KvTransferParams,
    Logprobs,
    PromptDetails,
    Usage,
)
from services.worker import metrics
from services.worker.engine.protocol import Engine, EngineRequest, Event, Sampling
from services.worker.handoff import Handoff
from services.worker.mailbox import Mailbox, Mailroom

MAX_BODY = 8 * 1024 * 1024  # bytes; a token id takes at most eight
DEFAULT_TIMEOUT = 600.0  # seconds, where the gateway names no deadline
_ID = re.compile(r"[\w.:-]{1,128}")
_log = logs.get()


class Completions:
    """Answers completions with one engine."""

    def __init__(self, settings: WorkerSettings, engine: Engine, mailroom: Mailroom, handoff: Handoff) -> None:
        self._settings = settings
        self._engine = engine
        self._mailroom = mailroom
        self._handoff = handoff
        self.draining = False

    async def post(self, request: Request) -> Response | Stream:
        """The handler. Errors before the first token have their status; later ones are an event of the stream."""
        if self.draining:
            raise Draining(f"{self._settings.instance} is draining: ask another worker")
        request_id = request.header("x-request-id") or f"req-{uuid.uuid4().hex}"
        if not _ID.fullmatch(request_id):
            raise InvalidRequest("X-Request-Id takes 1 to 128 letters, digits and .:_-", param="X-Request-Id")
        body = await request.json(CompletionRequest, limit=MAX_BODY)
        self._validate(body)
        leg = _Leg(self, request_id, body)
        if body.stream:
            return await leg.stream()
        return await leg.whole()

    def _validate(self, body: CompletionRequest) -> None:
        """Refuse what the engine cannot do; the gateway tells clients, so these are faults of other callers."""
        settings = self._settings
        if body.model != settings.model_name:
            raise ModelNotFound(f"this worker serves {settings.model_name}, not {body.model}", param="model")
        if not body.prompt:
            raise InvalidRequest("the prompt is empty", param="prompt")
        if not 0 <= min(body.prompt) <= max(body.prompt) < self._engine.vocab_size:
            raise InvalidRequest(f"token ids run from 0 to {self._engine.vocab_size - 1}", param="prompt")
        if not 1 <= body.max_tokens <= settings.decode_max_tokens:
            raise InvalidRequest(f"max_tokens runs from 1 to {settings.decode_max_tokens}", param="max_tokens")
        if len(body.prompt) + body.max_tokens > settings.max_model_len:
            raise ContextTooLong(
                f"{len(body.prompt)} prompt tokens and {body.max_tokens} more exceed {settings.max_model_len}",
                param="prompt",
            )
        if not (0 <= body.temperature <= 2 and 0 < body.top_p <= 1 and body.top_k >= 0):
            raise InvalidRequest("temperature runs from 0 to 2, top_p from above 0 to 1, top_k from 0")
        if not 0 <= body.output_tokens <= len(body.prompt):
            raise InvalidRequest("output_tokens counts tokens of the prompt", param="output_tokens")
        if body.logprobs is not None and not 0 <= body.logprobs <= 20:
            raise InvalidRequest("logprobs runs from 0 to 20", param="logprobs")
        if self._keeps_kv(body) and body.max_tokens != 1:
            raise InvalidRequest("do_remote_decode takes max_tokens 1", param="max_tokens")

    @staticmethod
    def _keeps_kv(body: CompletionRequest) -> bool:
        return body.kv_transfer_params is not None and body.kv_transfer_params.do_remote_decode


class _Leg:
    """One visit of one request."""

    def __init__(self, parent: Completions, request_id: str, body: CompletionRequest) -> None:
        self._settings = parent._settings
        self._engine = parent._engine
        self._mailroom = parent._mailroom
        self._handoff = parent._handoff
        self._id = request_id
        self._body = body
        self._params = body.kv_transfer_params or KvTransferParams()
        self._arrived = time.perf_counter()
        self._first = 0.0
        self._tokens = 0
        self._cached = 0

    async def whole(self) -> Response:
        """The answer in one piece."""
        parts: list[Event] = []
        with self._mailroom.visit(self._id) as box:
            await self._submit(box)
            while not box.ended or not parts:
                parts += self._seen(await box.take())
            choice = _choice(parts, self._body.logprobs)
            kept = parts[-1].kept_blocks
            params = None
            if kept and choice.finish_reason == "length":
                params = await self._handoff.grant(self._id, self._body.prompt, kept, parts[-1].kept_tokens)
            elif kept:
                self._engine.free(kept)
        self._close(choice)
        return json_response(self._response(choice, usage=self._usage(), params=params))

    async def stream(self) -> Stream:
        """The answer as events; returns once the first is there, so that a refusal has its status."""
        with ExitStack() as held:
            box = held.enter_context(self._mailroom.visit(self._id))
            await self._submit(box)
            first = await box.take()
            if first[-1].error is not None:
                raise first[-1].error
            return Stream(_Events(self, box, first, held.pop_all()))

    async def _submit(self, box: Mailbox) -> None:
        body, params = self._body, self._params
        timeout = DEFAULT_TIMEOUT if body.timeout is None else body.timeout
        fetch, fetched = None, 0
        if params.do_remote_prefill:
            fetch, fetched = await self._handoff.fetch(self._id, body.prompt, params)
        elif not params.do_remote_decode:
            metrics.local_prefills.inc()
        self._engine.submit(
            EngineRequest(
                request_id=box.visit,
                prompt=body.prompt,
                max_tokens=body.max_tokens,
                sampling=Sampling(
                    temperature=body.temperature,
                    top_p=body.top_p,
                    top_k=body.top_k,
                    seed=body.seed or 0,
                    frequency_penalty=body.frequency_penalty,
                    presence_penalty=body.presence_penalty,
                    logprobs=body.logprobs,
                    stop_token_ids=frozenset(body.stop_token_ids),
                    ignore_eos=body.ignore_eos,
                ),
                deadline=time.monotonic() + timeout,
                output_tokens=body.output_tokens,
                keep_kv=params.do_remote_decode,
                num_fetched=fetched,
                fetch=fetch,
            )
        )

    def encode(self, events: list[Event]) -> tuple[bytes, bool]:
        """What came, as one write, and whether the stream ends with it."""
        error = events[-1].error
        if error is not None:
            return b"data: " + error.body() + b"\n\n", True
        self._seen(events)
        choice = _choice(events, self._body.logprobs)
        if choice.finish_reason is None:
            return _event(self._response(choice, usage=None)), False
        self._close(choice)
        return _event(self._response(choice, usage=self._usage())) + b"data: [DONE]\n\n", True

    def _seen(self, events: list[Event]) -> list[Event]:
        """Count what came; raises the error of the last event."""
        if events[-1].error is not None:
            raise events[-1].error
        model = self._settings.model_name
        new = sum(len(event.token_ids) for event in events)
        if new and not self._tokens:
            self._first = time.perf_counter()
            metrics.time_to_first_token.labels(model).observe(self._first - self._arrived)
            metrics.prompt_tokens.labels(model).inc(len(self._body.prompt))
            self._cached = events[0].cached_tokens
        self._tokens += new
        metrics.generation_tokens.labels(model).inc(new)
        return events

    def _close(self, choice: Choice) -> None:
        model, seconds = self._settings.model_name, time.perf_counter() - self._first
        metrics.requests_ended.labels(model, choice.finish_reason).inc()
        if self._tokens > 1:
            metrics.time_per_output_token.labels(model).observe(seconds / (self._tokens - 1))
        _log.info(
            "leg_done",
            request_id=self._id,
            phase=self._settings.phase,
            prompt_tokens=len(self._body.prompt),
            tokens=self._tokens,
            first_token_ms=round((self._first - self._arrived) * 1e3, 1),
            finish_reason=choice.finish_reason,
            revision=self._settings.model_revision,
            engine=self._handoff.engine_id,
            kv_of=self._params.remote_engine_id,
        )

    def _usage(self) -> Usage:
        prompt = len(self._body.prompt)
        return Usage(prompt, self._tokens, prompt + self._tokens, PromptDetails(self._cached))

    def _response(
        self, choice: Choice, *, usage: Usage | None, params: KvTransferParams | None = None
    ) -> CompletionResponse:
        return CompletionResponse(
            id=self._id, model=self._body.model, choices=[choice], usage=usage, kv_transfer_params=params
        )


class _Events:
    """The events of a stream as bytes; a class and not a generator, so that `aclose` works before the first item."""

    def __init__(self, leg: _Leg, box: Mailbox, first: list[Event], held: ExitStack) -> None:
        self._leg, self._box, self._first, self._held = leg, box, first, held
        self._done = False

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> bytes:
        if self._done:
            raise StopAsyncIteration
        events, self._first = self._first or await self._box.take(), []
        data, self._done = self._leg.encode(events)
        return data

    async def aclose(self) -> None:
        """Leave the visit; what still runs is aborted."""
        self._held.close()


def _choice(events: list[Event], logprobs: int | None) -> Choice:
    """What several events brought, as one choice."""
    ids = [token for event in events for token in event.token_ids]
    choice = Choice(token_ids=ids, finish_reason=events[-1].finish_reason)
    if logprobs is not None:
        choice.logprobs = Logprobs(
            tokens=[_name(token) for token in ids],
            token_logprobs=[value for event in events for value in event.token_logprobs],
            top_logprobs=[
                {_name(token): value for token, value in top} for event in events for top in event.top_logprobs
            ],
        )
    return choice


def _name(token: int) -> str:
    return f"token_id:{token}"


def _event(response: CompletionResponse) -> bytes:
    return b"data: " + msgspec.json.encode(response) + b"\n\n"
