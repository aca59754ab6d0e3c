"""One request to the gateway, made and timed as any client of the OpenAI API would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from scripts.verification.facts import Answer
from scripts.verification.prompts import Prompt
from services.common.errors import DiphaseError, ErrorResponse
from services.common.http_client import HttpClient, StreamReply


class _Text(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Text = _Text()
    delta: _Text = _Text()
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Chat(msgspec.Struct):
    """An answer, or a chunk of one."""

    choices: list[_Choice] = []
    usage: _Usage | None = None


class Asker:
    """Asks one gateway for chat completions at temperature 0."""

    def __init__(self, client: HttpClient, url: str, key: str, timeout: float) -> None:
        self._client = client
        self.url = f"{url}/v1/chat/completions"
        self.headers = [("Authorization", f"Bearer {key}")]
        self.timeout = timeout

    async def ask(self, model: str, prompt: Prompt, streamed: bool) -> Answer:
        """The answer; what went wrong is in its status and error, nothing is raised."""
        answer = Answer(prompt.name, streamed, None, max_tokens=prompt.max_tokens)
        body = msgspec.json.encode(_request(model, prompt, streamed))
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with self._client.stream("POST", self.url, body, headers=self.headers, timeout=self.timeout) as reply:
                answer.status = reply.status
                if reply.status == 200 and streamed:
                    answer.ended = False
                    await _read_events(reply, answer, lambda: clock() - began)
                else:
                    _read_whole(await reply.read(), answer)
                    answer.first_at = answer.last_at = clock() - began
        except DiphaseError as error:
            answer.error = error.message
        except msgspec.MsgspecError as error:
            answer.error = f"no valid answer: {error}"
        return answer


def _request(model: str, prompt: Prompt, streamed: bool) -> Mapping[str, object]:
    request: dict[str, object] = {
        "model": model,
        "messages": [{"role": role, "content": text} for role, text in prompt.messages],
        "max_tokens": prompt.max_tokens,
        "temperature": 0,
        "stream": streamed,
    }
    if streamed:
        request["stream_options"] = {"include_usage": True}
    return request


def _read_whole(body: bytes, answer: Answer) -> None:
    if answer.status != 200:
        answer.error = said(body)
        return
    chat = msgspec.json.decode(body, type=_Chat)
    _count(chat, answer)
    if chat.choices:
        answer.text = chat.choices[0].message.content or ""
        answer.finish_reason = chat.choices[0].finish_reason


async def _read_events(reply: StreamReply, answer: Answer, elapsed: Callable[[], float]) -> None:
    rest = b""
    async for data in reply:
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            if not event.startswith(b"data: "):
                continue  # a comment that keeps the connection alive
            payload = event[6:]
            if payload == b"[DONE]":
                answer.ended = True
            elif payload.startswith(b'{"error"'):
                answer.error = said(payload)
            else:
                _add(msgspec.json.decode(payload, type=_Chat), answer, elapsed())


def _add(chunk: _Chat, answer: Answer, now: float) -> None:
    _count(chunk, answer)
    if not chunk.choices:
        return
    choice = chunk.choices[0]
    answer.finish_reason = choice.finish_reason or answer.finish_reason
    if choice.delta.content:
        answer.text += choice.delta.content
        answer.first_at = now if answer.first_at is None else answer.first_at
        answer.last_at = now


def _count(chat: _Chat, answer: Answer) -> None:
    if chat.usage is not None:
        answer.prompt_tokens, answer.completion_tokens = chat.usage.prompt_tokens, chat.usage.completion_tokens


def said(body: bytes) -> str:
    """The message of an error, or the body's beginning where it is none."""
    try:
        error = msgspec.json.decode(body, type=ErrorResponse).error
        return f"{error.code or error.type}: {error.message}"
    except msgspec.MsgspecError:
        return body[:200].decode(errors="replace")
