"""Logprobs in the two shapes of the OpenAI API."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.gateway.answer import TokenLogprob
from services.gateway.tokenization import Tokenization


class TopLogprob(msgspec.Struct):
    """A token that could have come; `bytes` may be part of a character, which `token` cannot show."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(msgspec.Struct):
    """A token that came."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """`logprobs` of a chat choice."""

    content: list[ChatLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct):
    """`logprobs` of a completion choice: one entry for each token, in four lists."""

    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]] | None


def for_chat(entries: Sequence[TokenLogprob], tokenization: Tokenization) -> ChatLogprobs:
    """In the shape of chat completions."""

    def shown(token_id: int) -> tuple[str, list[int]]:
        raw = tokenization.token_bytes(token_id)
        return raw.decode(errors="replace"), list(raw)

    content = []
    for entry in entries:
        token, raw = shown(entry.token_id)
        top = [TopLogprob(name, value, name_raw) for index, value in entry.top for name, name_raw in (shown(index),)]
        content.append(ChatLogprob(token, entry.logprob, raw, top))
    return ChatLogprobs(content)


def for_completion(entries: Sequence[TokenLogprob], tokenization: Tokenization) -> CompletionLogprobs:
    """In the shape of completions."""

    def shown(token_id: int) -> str:
        return tokenization.token_bytes(token_id).decode(errors="replace")

    tops = [{shown(index): value for index, value in entry.top} for entry in entries]
    return CompletionLogprobs(
        text_offset=[entry.offset for entry in entries],
        token_logprobs=[entry.logprob for entry in entries],
        tokens=[shown(entry.token_id) for entry in entries],
        top_logprobs=tops if any(tops) else None,
    )
