"""Chunks of a streamed answer: a template for each stream, into which each piece is written."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from services.common.errors import DiphaseError
from services.common.wire import Usage
from services.gateway import logprobs
from services.gateway.answer import Piece, TokenLogprob
from services.gateway.responses import Envelope
from services.gateway.tokenization import Tokenization

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


def error_event(error: DiphaseError) -> bytes:
    """How a stream that has begun tells its failure; [DONE] does not follow."""
    return b"data: " + error.body() + b"\n\n"


class Chunks:
    """The chunks of one stream; each method returns bytes to be written. The two endpoints differ in what is below."""

    kind: str
    text: bytes  # where a choice has its text, a template
    empty: bytes  # the same without any
    shown: Callable[[list[TokenLogprob], Tokenization], msgspec.Struct]

    def __init__(
        self, envelope: Envelope, tokenization: Tokenization, *, with_usage: bool, with_token_ids: bool = False
    ) -> None:
        self._tokenization = tokenization
        self._with_usage = with_usage
        self._with_token_ids = with_token_ids
        self._head = b'data: {"id":%s,"object":"%s","created":%d,"model":%s,"system_fingerprint":%s,"choices":[' % (
            _encode(envelope.id),
            self.kind.encode(),
            envelope.created,
            _encode(envelope.model),
            _encode(envelope.fingerprint),
        )
        self._tail = b'],"usage":null}\n\n' if with_usage else b"]}\n\n"

    def first(self) -> bytes:
        """What precedes the text."""
        return b""

    def piece(self, piece: Piece) -> bytes:
        """Text and its logprobs; nothing where the step brought nothing to show."""
        if not (piece.text or piece.logprobs or (self._with_token_ids and piece.token_ids)):
            return b""
        return b'%s{"index":0,%s,"logprobs":%s,"finish_reason":null%s}%s' % (
            self._head,
            self.text % _encode(piece.text),
            _encode(self.shown(piece.logprobs, self._tokenization)) if piece.logprobs else b"null",
            b',"token_ids":' + _encode(piece.token_ids) if self._with_token_ids else b"",
            self._tail,
        )

    def last(self, finish_reason: str, usage: Usage) -> bytes:
        """The finish reason, the usage if asked for, and the end."""
        end = b'{"index":0,%s,"logprobs":null,"finish_reason":"%s"}' % (self.empty, finish_reason.encode())
        return self._head + end + self._tail + self._usage(usage) + DONE

    def _usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + _encode(usage) + b"}\n\n" if self._with_usage else b""


class ChatChunks(Chunks):
    """chat.completion.chunk."""

    kind = "chat.completion.chunk"
    text = b'"delta":{"content":%s}'
    empty = b'"delta":{}'
    shown = staticmethod(logprobs.for_chat)

    def first(self) -> bytes:
        """The role."""
        role = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return self._head + role + self._tail


class CompletionChunks(Chunks):
    """text_completion."""

    kind = "text_completion"
    text = b'"text":%s'
    empty = b'"text":""'
    shown = staticmethod(logprobs.for_completion)
