"""The gateway's parts put together, and its routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from services.common.discovery import Discovery
from services.common.errors import DiphaseError, InvalidRequest, ModelNotFound, Saturated
from services.common.http_client import HttpClient
from services.common.http_server import App, Headers, Request, Response, Stream, error_response, json_response
from services.common.settings import GatewaySettings
from services.common.tls import Certificates
from services.gateway import endpoints, job, metrics, sse, validation
from services.gateway.answer import Answer, Piece
from services.gateway.background import Background
from services.gateway.chat_template import ChatTemplate
from services.gateway.endpoints import Endpoint
from services.gateway.job import InternalIds, Job
from services.gateway.keys import ApiKeys
from services.gateway.life import Life
from services.gateway.record import Record
from services.gateway.responses import Envelope, Model, ModelList
from services.gateway.schedulers import Schedulers
from services.gateway.tokenization import Tokenization
from services.gateway.upstream import Workers
from services.gateway.validation import Limits, Parameters

_encode = msgspec.json.Encoder().encode


class Gateway:
    """The OpenAI API in front of schedulers and workers, which are reached with `tls`. Raises SettingsError where its
    files are not in order.
    """

    def __init__(self, settings: GatewaySettings, tls: Certificates | None = None) -> None:
        self.settings = settings
        self.background = Background()
        self._keys = ApiKeys(settings.gateway_api_keys_file)
        self._tokenization = Tokenization(settings.model_path, settings.max_model_len)
        self._limits = Limits(settings.max_model_len, settings.decode_max_tokens, self._tokenization.vocab_size)
        self._client = HttpClient(max_idle=settings.gateway_max_inflight, certificates=tls)
        self._schedulers = Schedulers(self._client, Discovery(settings.scheduler_urls), settings.instance)
        self._workers = Workers(self._client)
        self._model = Model(settings.model_name, int(time.time()), settings.max_model_len)
        self._ids = InternalIds()
        self._inflight = 0
        self._chat = endpoints.chat(ChatTemplate(settings.model_path), self._tokenization)
        self._completion = endpoints.completion(self._tokenization, self._limits)
        self.app = App(public=True)
        if tls is not None:
            self.app.require(tls.fault)
        self.app.route("POST", "/v1/chat/completions", self._post_chat)
        self.app.route("POST", "/v1/completions", self._post_completion)
        self.app.route("GET", "/v1/models", self._get_models)
        self.app.route("GET", "/v1/models/{id}", self._get_model)

    async def close(self) -> None:
        """Finish what runs in the background and close connections; after the last request."""
        await self.background.settle(timeout=3.0)
        self._tokenization.close()
        await self._schedulers.close()
        await self._client.close()

    # -- routes
    async def _post_chat(self, request: Request) -> Response | Stream:
        return await self._generate(request, self._chat)

    async def _post_completion(self, request: Request) -> Response | Stream:
        return await self._generate(request, self._completion)

    async def _get_models(self, request: Request) -> Response:
        self._keys.authenticate(request.header("authorization"))
        return json_response(ModelList([self._model]))

    async def _get_model(self, request: Request) -> Response:
        self._keys.authenticate(request.header("authorization"))
        self._check_model(request.params[0])
        return json_response(self._model)

    def _check_model(self, name: str) -> None:
        if name != self._model.id:
            raise ModelNotFound(f"there is no model {name!r} here: use {self._model.id}", param="model")

    # -- generating
    async def _generate(self, request: Request, endpoint: Endpoint[Any]) -> Response | Stream:
        """Answer with the request's id, whatever the answer is."""
        try:
            request_id = job.request_id(request.header("x-request-id"))
        except InvalidRequest as error:
            return error_response(error, _id_headers(job.request_id(None)))
        headers = _id_headers(request_id)
        metrics.inflight.inc()
        self._inflight += 1
        streaming = False
        try:
            work, parameters = await self._accept(request, endpoint, request_id)
            exchange = _Exchange(self, endpoint, work, parameters)
            if not parameters.stream:
                return Response(await exchange.whole(), headers=headers)
            streaming = True
            return Stream(
                exchange.events(),
                headers=headers,
                silence=self.settings.gateway_keepalive_seconds,
                error_event=sse.error_event,
            )
        except DiphaseError as error:
            return error_response(error, headers)
        finally:
            if not streaming:
                self.leave()

    def leave(self) -> None:
        """A request that was let in is over."""
        self._inflight -= 1
        metrics.inflight.dec()

    async def _accept(self, request: Request, endpoint: Endpoint[Any], request_id: str) -> tuple[Job, Parameters]:
        """Everything that can be refused before a worker is asked."""
        settings = self.settings
        deadline = asyncio.get_running_loop().time() + settings.gateway_request_timeout_seconds
        key = self._keys.authenticate(request.header("authorization"))
        if self._inflight > settings.gateway_max_inflight:
            raise Saturated
        if (request.header("content-encoding") or "identity").lower() != "identity":
            raise InvalidRequest("Content-Encoding is not served: send the JSON as it is")
        data = await request.body(settings.gateway_max_body_bytes, settings.gateway_body_timeout_seconds)
        body = validation.decode(data, endpoint.decoder)
        self._check_model(body.model)
        key.check_model(body.model)
        parameters = endpoint.parameters(body, self._limits)
        prompt = await endpoint.prompt(body)
        work = Job(
            request_id=request_id,
            internal_id=self._ids.take(request_id),
            traceparent=job.traceparent(request.header("traceparent")),
            model=settings.model_name,
            prompt=prompt,
            parameters=parameters,
            max_tokens=validation.answer_tokens(len(prompt), parameters.max_tokens, self._limits),
            seed=job.draw_seed() if parameters.seed is None else parameters.seed,
            deadline=deadline,
        )
        return work, parameters

    def life(self, work: Job) -> Life:
        """The life of an accepted request."""
        return Life(work, self._schedulers, self._workers, self.background)

    def answer(self, parameters: Parameters) -> Answer:
        """An empty answer."""
        return Answer(self._tokenization, parameters.stop)

    @property
    def tokenization(self) -> Tokenization:
        """The model's tokenizer."""
        return self._tokenization


class _Exchange:
    """An accepted request and its answer."""

    def __init__(self, gateway: Gateway, endpoint: Endpoint[Any], work: Job, parameters: Parameters) -> None:
        self._gateway, self._endpoint, self._parameters = gateway, endpoint, parameters
        self._life = gateway.life(work)
        self._answer = gateway.answer(parameters)
        self._record = Record(endpoint.operation, work, self._life, self._answer)
        self._envelope = Envelope(
            f"{endpoint.id_prefix}-{work.request_id}", int(time.time()), work.model, gateway.settings.model_revision
        )

    async def whole(self) -> bytes:
        """The answer as one JSON object."""
        texts, entries, ids = [], [], []
        async with aclosing(self._pieces()) as pieces:
            async for piece in pieces:
                texts.append(piece.text)
                entries += piece.logprobs
                ids += piece.token_ids
        tokenization = None if self._parameters.logprobs is None else self._gateway.tokenization
        reason = self._answer.finish_reason
        assert reason is not None
        whole = Piece("".join(texts), entries, ids if self._parameters.return_token_ids else [])
        return _encode(self._endpoint.whole(self._envelope, whole, reason, self._record.usage(), tokenization))

    async def events(self) -> AsyncGenerator[bytes]:
        """The answer as chunks, one write for what one read from the worker brought."""
        chunks = self._endpoint.chunks(
            self._envelope,
            self._gateway.tokenization,
            with_usage=self._parameters.include_usage,
            with_token_ids=self._parameters.return_token_ids,
        )
        try:
            data = chunks.first()
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    data += chunks.piece(piece)
                    if data and self._answer.finish_reason is None:
                        yield data
                        data = b""
            # The response ends with this write: a client that hangs up at [DONE] then keeps its connection.
            reason = self._answer.finish_reason
            assert reason is not None
            yield data + chunks.last(reason, self._record.usage())
        finally:
            self._gateway.leave()

    async def _pieces(self) -> AsyncGenerator[Piece]:
        code = "client_gone"
        try:
            async with aclosing(self._life.steps()) as steps:
                async for step in steps:
                    self._record.step()
                    yield self._answer.feed(step)
                    if self._answer.stopped_early:
                        break
            code = ""
        except DiphaseError as error:
            code = error.code
            raise
        finally:
            self._record.close("" if self._answer.finish_reason is not None else code)


def _id_headers(request_id: str) -> Headers:
    return ((b"x-request-id", request_id.encode()),)
