"""Answers that are sent whole."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from services.common.wire import Usage
from services.gateway import logprobs
from services.gateway.answer import Piece
from services.gateway.tokenization import Tokenization


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every answer and every chunk of one request repeats; `created` is a Unix time in seconds."""

    id: str
    created: int
    model: str
    fingerprint: str


class Message(msgspec.Struct):
    """The assistant's message."""

    content: str
    role: str = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct):
    """The one choice of a chat completion."""

    message: Message
    finish_reason: str
    logprobs: logprobs.ChatLogprobs | None
    index: int = 0
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class TextChoice(msgspec.Struct):
    """The one choice of a completion."""

    text: str
    finish_reason: str
    logprobs: logprobs.CompletionLogprobs | None
    index: int = 0
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct):
    """Either answer."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice] | list[TextChoice]
    usage: Usage


def chat(envelope: Envelope, whole: Piece, reason: str, usage: Usage, wanted: Tokenization | None) -> Completion:
    """A chat.completion; `wanted` is None if no logprobs were asked for. Token ids are shown where `whole` has them."""
    shown = None if wanted is None else logprobs.for_chat(whole.logprobs, wanted)
    choice = ChatChoice(Message(whole.text), reason, shown, token_ids=whole.token_ids or msgspec.UNSET)
    return _completion(envelope, "chat.completion", [choice], usage)


def text(envelope: Envelope, whole: Piece, reason: str, usage: Usage, wanted: Tokenization | None) -> Completion:
    """A text_completion; `wanted` is None if the request asked for no logprobs."""
    shown = None if wanted is None else logprobs.for_completion(whole.logprobs, wanted)
    choice = TextChoice(whole.text, reason, shown, token_ids=whole.token_ids or msgspec.UNSET)
    return _completion(envelope, "text_completion", [choice], usage)


def _completion(
    envelope: Envelope, kind: str, choices: list[ChatChoice] | list[TextChoice], usage: Usage
) -> Completion:
    return Completion(envelope.id, kind, envelope.created, envelope.model, envelope.fingerprint, choices, usage)


class Model(msgspec.Struct):
    """An entry of /v1/models."""

    id: str
    created: int
    max_model_len: int
    object: str = "model"
    owned_by: str = "diphase"


class ModelList(msgspec.Struct):
    """/v1/models."""

    data: list[Model]
    object: str = "list"
