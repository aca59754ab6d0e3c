"""The two generating endpoints: how each reads its request and writes its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from services.common.errors import InvalidRequest
from services.common.wire import Usage
from services.gateway import responses, validation
from services.gateway.answer import Piece
from services.gateway.api_types import ChatRequest, CompletionRequest, GenerationRequest
from services.gateway.chat_template import ChatTemplate
from services.gateway.responses import Completion, Envelope
from services.gateway.sse import ChatChunks, Chunks, CompletionChunks
from services.gateway.tokenization import Tokenization
from services.gateway.validation import Limits, Parameters

R = TypeVar("R", bound=GenerationRequest)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[R]):
    """One of the two; `operation` is its name in OpenTelemetry's conventions."""

    operation: str
    id_prefix: str
    decoder: msgspec.json.Decoder[R]
    parameters: Callable[[R, Limits], Parameters]
    prompt: Callable[[R], Awaitable[list[int]]]
    chunks: type[Chunks]
    whole: Callable[[Envelope, Piece, str, Usage, Tokenization | None], Completion]


def chat(template: ChatTemplate, tokenization: Tokenization) -> Endpoint[ChatRequest]:
    """/v1/chat/completions."""

    async def prompt(request: ChatRequest) -> list[int]:
        text = template.render(validation.conversation(request.messages))
        return await tokenization.encode(text, add_special_tokens=False)  # the template wrote them

    decoder = msgspec.json.Decoder(ChatRequest)
    return Endpoint("chat", "chatcmpl", decoder, validation.chat_parameters, prompt, ChatChunks, responses.chat)


def completion(tokenization: Tokenization, limits: Limits) -> Endpoint[CompletionRequest]:
    """/v1/completions."""

    async def prompt(request: CompletionRequest) -> list[int]:
        value = validation.prompt(request.prompt, limits)
        ids = await tokenization.encode(value, add_special_tokens=True) if isinstance(value, str) else value
        if not ids:
            raise InvalidRequest("prompt holds nothing that the model can read: send a text", param="prompt")
        return ids

    decoder = msgspec.json.Decoder(CompletionRequest)
    parameters: Any = validation.completion_parameters
    return Endpoint("text_completion", "cmpl", decoder, parameters, prompt, CompletionChunks, responses.text)
