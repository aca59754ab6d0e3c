"""The requests of the OpenAI API as strict msgspec structs; an unknown field is refused by name.

Fields of type Any are known but not served: validation.py lets their neutral values pass and refuses the others.
"""

from __future__ import annotations

from typing import Any

import msgspec


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`stream_options`."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # harmless: padding against eavesdroppers, which TLS at the edge leaves out


class GenerationRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What both endpoints share. None stands for the default."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # Ours
    top_k: int | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None  # as vLLM's: the answer's ids beside its text
    # Taken and not used
    user: str | None = None
    metadata: dict[str, Any] | None = None
    # Not served
    n: Any = None
    logit_bias: Any = None


class ChatMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One message; `content` is text, or a list of parts {"type": "text", "text": …}."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    # What clients send back with an earlier answer of ours, all of it empty then
    refusal: Any = None
    annotations: Any = None
    audio: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    function_call: Any = None


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    # Taken and not used
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    parallel_tool_calls: bool | None = None
    # Not served
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    web_search_options: Any = None
    moderation: Any = None


class CompletionRequest(GenerationRequest):
    """POST /v1/completions; `prompt` is a text, a list of token ids, or a list that holds one of these."""

    prompt: str | list[Any]
    logprobs: int | None = None
    # Not served
    best_of: Any = None
    echo: Any = None
    suffix: Any = None


# Values of the fields that are not served which ask for nothing; anything else is refused.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": (),
    "web_search_options": (),
    "moderation": (),
}
# The same in a message.
NEUTRAL_IN_MESSAGE: dict[str, tuple[object, ...]] = {
    "refusal": (),
    "annotations": ([],),
    "audio": (),
    "tool_calls": ([],),
    "tool_call_id": (),
    "function_call": (),
}
