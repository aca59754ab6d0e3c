"""Checks a request and says what to change: pure functions from the structs of api_types.py to what the life needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from services.common.errors import ContextTooLong, InvalidRequest
from services.gateway.api_types import (
    NEUTRAL,
    NEUTRAL_IN_MESSAGE,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
)

T = TypeVar("T")
ROLES = ("system", "user", "assistant")
MAX_STOPS = 4
MAX_STOP_CHARS = 256  # bounds the text that may be held back
MAX_LOGPROBS = 20
_PATH = re.compile(r" - at `\$\.?(?:key in )?(.*)`$")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
_MISSING = re.compile(r"required field `(.*?)`")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the gateway's settings allow."""

    max_model_len: int
    max_answer: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Parameters:
    """How the answer is to be made. `max_tokens` and `seed` are None where the client left them open."""

    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    frequency_penalty: float
    presence_penalty: float
    stop: tuple[str, ...]
    logprobs: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool
    return_token_ids: bool


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The body as a struct; raises InvalidRequest that names the field."""
    if not body:
        raise InvalidRequest("the body is empty: send a JSON object")
    try:
        return decoder.decode(body)
    except RecursionError:
        raise InvalidRequest("the JSON is nested too deeply: send the plain structure of the API reference") from None
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not valid UTF-8: encode the JSON as UTF-8") from None
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None
    except msgspec.DecodeError as error:
        if "UTF-8" in str(error):
            raise InvalidRequest("the body is not valid UTF-8: encode the JSON as UTF-8") from None
        raise InvalidRequest(f"the body is not valid JSON ({error}): send one JSON object") from None


def _named(message: str) -> InvalidRequest:
    """msgspec's complaint about a field, in the words of the API."""
    where = _PATH.search(message)
    path = where.group(1) if where else ""
    what = message[: where.start()] if where else message
    if unknown := _UNKNOWN.search(what):
        name = f"{path}.{unknown.group(1)}" if path else unknown.group(1)
        return InvalidRequest(f"unknown field {name}: remove it, or check its spelling", param=name)
    if missing := _MISSING.search(what):
        name = f"{path}.{missing.group(1)}" if path else missing.group(1)
        return InvalidRequest(f"the field {name} is missing: it is required", param=name)
    if not path:
        return InvalidRequest(f"the body must be a JSON object: {what}")
    return InvalidRequest(f"{path}: {what.replace('Expected', 'expected').replace('`', '')}", param=path)


def chat_parameters(request: ChatRequest, limits: Limits) -> Parameters:
    """Of a chat request; raises InvalidRequest."""
    asked = request.max_tokens
    if request.max_completion_tokens is not None:
        if asked is not None and asked != request.max_completion_tokens:
            raise _wrong("max_tokens", "differs from max_completion_tokens: send one of the two")
        asked = request.max_completion_tokens
    name = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    if request.top_logprobs is not None and not request.logprobs:
        raise _wrong("top_logprobs", "needs logprobs: true")
    _between("top_logprobs", request.top_logprobs, 0, MAX_LOGPROBS)
    if request.parallel_tool_calls and request.tools:
        raise _wrong("parallel_tool_calls", "is not served: remove it")
    return _parameters(request, limits, name, asked, (request.top_logprobs or 0) if request.logprobs else None)


def completion_parameters(request: CompletionRequest, limits: Limits) -> Parameters:
    """Of a completion request; raises InvalidRequest."""
    _between("logprobs", request.logprobs, 0, MAX_LOGPROBS)
    return _parameters(request, limits, "max_tokens", request.max_tokens, request.logprobs)


def _parameters(
    request: GenerationRequest, limits: Limits, max_name: str, max_tokens: int | None, logprobs: int | None
) -> Parameters:
    _refuse_unserved(request, NEUTRAL, "")
    _between(max_name, max_tokens, 1, limits.max_answer)
    _between("temperature", request.temperature, 0, 2)
    _between("frequency_penalty", request.frequency_penalty, -2, 2)
    _between("presence_penalty", request.presence_penalty, -2, 2)
    _between("seed", request.seed, -(2**63), 2**63 - 1)
    _between("top_k", request.top_k, 0, limits.vocab_size)
    if request.top_p is not None and not 0 < request.top_p <= 1:
        raise _wrong("top_p", f"must be above 0 and at most 1, not {request.top_p:g}")
    if request.stream_options is not None and not request.stream:
        raise _wrong("stream_options", "needs stream: true")
    return Parameters(
        max_tokens=max_tokens,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=request.top_k or 0,
        seed=request.seed,
        frequency_penalty=request.frequency_penalty or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        stop=_stops(request.stop),
        logprobs=logprobs,
        ignore_eos=bool(request.ignore_eos),
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        return_token_ids=bool(request.return_token_ids),
    )


def conversation(messages: list[ChatMessage]) -> list[dict[str, str]]:
    """The messages as the chat template takes them; raises InvalidRequest."""
    if not messages:
        raise _wrong("messages", "is empty: send at least one message")
    return [_message(index, message) for index, message in enumerate(messages)]


def _message(index: int, message: ChatMessage) -> dict[str, str]:
    name = f"messages[{index}]"
    if message.role not in ROLES:
        raise _wrong(f"{name}.role", f"must be one of {', '.join(ROLES)}, not {message.role!r}")
    _refuse_unserved(message, NEUTRAL_IN_MESSAGE, f"{name}.")
    content = message.content
    if content is None:
        raise _wrong(f"{name}.content", "is missing: send a text")
    if isinstance(content, list):
        content = "\n".join(_part(f"{name}.content[{i}]", part) for i, part in enumerate(content))
    out = {"role": message.role, "content": content}
    if message.name is not None:
        out["name"] = message.name
    return out


def _part(name: str, part: dict[str, object]) -> str:
    if part.get("type") != "text":
        raise _wrong(f"{name}.type", f"must be text, not {part.get('type')!r}: this model reads text only")
    text = part.get("text")
    if not isinstance(text, str):
        raise _wrong(f"{name}.text", "must be a string")
    if len(part) != 2:
        raise _wrong(name, "takes the fields type and text only")
    return text


def prompt(value: str | list[object], limits: Limits) -> str | list[int]:
    """A completion's prompt, as text or as token ids; raises InvalidRequest."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if not value:
        raise _wrong("prompt", "is empty: send a text or a list of token ids")
    if isinstance(value, str):
        return value
    if any(isinstance(item, str | list) for item in value):
        raise _wrong("prompt", "holds several prompts: send one prompt in each request")
    ids = [item for item in value if type(item) is int and 0 <= item < limits.vocab_size]
    if len(ids) != len(value):
        wrong = next(i for i, item in enumerate(value) if type(item) is not int or not 0 <= item < limits.vocab_size)
        raise _wrong("prompt", f"token ids run from 0 to {limits.vocab_size - 1}; [{wrong}] is {_short(value[wrong])}")
    return ids


def answer_tokens(prompt_tokens: int, asked: int | None, limits: Limits) -> int:
    """How many tokens the answer may have; raises ContextTooLong with the figures."""
    room = limits.max_model_len - prompt_tokens
    if asked is None:
        asked = max(1, min(limits.max_answer, room))
    if asked > room:
        raise ContextTooLong(
            f"this model takes {limits.max_model_len} tokens; the prompt has {prompt_tokens} and the answer may have "
            f"{asked}, together {prompt_tokens + asked}: shorten the prompt or lower max_tokens",
            param="prompt",
        )
    return asked


def _refuse_unserved(value: object, neutral: dict[str, tuple[object, ...]], prefix: str) -> None:
    for name, allowed in neutral.items():
        given = getattr(value, name, None)
        if given is None:
            continue
        if not any(given == one and type(given) is type(one) for one in allowed):
            options = " or ".join(msgspec.json.encode(one).decode() for one in allowed)
            advice = f"it must be {options}, or left out" if options else "remove it"
            raise _wrong(prefix + name, f"is not served with this value: {advice}")


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > MAX_STOPS:
        raise _wrong("stop", f"takes at most {MAX_STOPS} strings, not {len(stops)}")
    for one in stops:
        if not one or len(one) > MAX_STOP_CHARS:
            raise _wrong("stop", f"each string must have 1 to {MAX_STOP_CHARS} characters, not {len(one)}")
    return stops


def _between(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise _wrong(name, f"must be between {low} and {high}, not {_short(value)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _wrong(name: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"{name} {what}", param=name)
