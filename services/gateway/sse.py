"""Chunks of a streamed answer: a template for each stream, into which each piece is written."""

from __future__ import annotations

import msgspec

from services.common.errors import DiphaseError
from services.common.wire import Usage
from services.gateway import logprobs
from services.gateway.answer import Piece
from services.gateway.responses import Envelope
from services.gateway.tokenization import Tokenization

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


def error_event(error: DiphaseError) -> bytes:
    """How a stream that has begun tells its failure; [DONE] does not follow."""
    return b"data: " + error.body() + b"\n\n"


class Chunks:
    """The chunks of one stream; each method returns bytes to be written."""

    kind: str

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
        raise NotImplementedError

    def last(self, finish_reason: str, usage: Usage) -> bytes:
        """The finish reason, the usage if asked for, and the end."""
        raise NotImplementedError

    def _ids(self, piece: Piece) -> bytes:
        return b',"token_ids":' + _encode(piece.token_ids) if self._with_token_ids else b""

    def _nothing_in(self, piece: Piece) -> bool:
        return not (piece.text or piece.logprobs or (self._with_token_ids and piece.token_ids))

    def _usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + _encode(usage) + b"}\n\n" if self._with_usage else b""


class ChatChunks(Chunks):
    """chat.completion.chunk."""

    kind = "chat.completion.chunk"

    def first(self) -> bytes:
        """The role."""
        role = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return self._head + role + self._tail

    def piece(self, piece: Piece) -> bytes:
        """A delta."""
        if self._nothing_in(piece):
            return b""
        shown = _encode(logprobs.for_chat(piece.logprobs, self._tokenization)) if piece.logprobs else b"null"
        return b'%s{"index":0,"delta":{"content":%s},"logprobs":%s,"finish_reason":null%s}%s' % (
            self._head,
            _encode(piece.text),
            shown,
            self._ids(piece),
            self._tail,
        )

    def last(self, finish_reason: str, usage: Usage) -> bytes:
        """An empty delta with the reason."""
        end = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"%s"}' % finish_reason.encode()
        return self._head + end + self._tail + self._usage(usage) + DONE


class CompletionChunks(Chunks):
    """text_completion."""

    kind = "text_completion"

    def piece(self, piece: Piece) -> bytes:
        """A text."""
        if self._nothing_in(piece):
            return b""
        shown = _encode(logprobs.for_completion(piece.logprobs, self._tokenization)) if piece.logprobs else b"null"
        return b'%s{"index":0,"text":%s,"logprobs":%s,"finish_reason":null%s}%s' % (
            self._head,
            _encode(piece.text),
            shown,
            self._ids(piece),
            self._tail,
        )

    def last(self, finish_reason: str, usage: Usage) -> bytes:
        """An empty text with the reason."""
        end = b'{"index":0,"text":"","logprobs":null,"finish_reason":"%s"}' % finish_reason.encode()
        return self._head + end + self._tail + self._usage(usage) + DONE
