"""Malformed requests as data: what is sent, and which answer is right. `$MODEL` stands for the served model's name."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, field
from typing import Any

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]
SECONDS = 60.0


@dataclass(frozen=True)
class Malformed:
    """One request; `words` must all stand in the message. A header of None is left out."""

    name: str
    status: int
    words: tuple[str, ...]
    body: bytes = b""
    path: str = CHAT
    method: str = "POST"
    headers: dict[str, str | None] = field(default_factory=dict)

    def fault(self, status: int, body: bytes) -> str | None:
        """What is wrong with an answer, or None."""
        if status != self.status:
            return f"status {status}, not {self.status}: {body[:300]!r}"
        try:
            error = json.loads(body)["error"]
            message = error["message"]
        except (ValueError, KeyError, TypeError):
            return f"no error object: {body[:300]!r}"
        if set(error) != {"message", "type", "param", "code"}:
            return f"fields {sorted(error)}"
        missing = [word for word in self.words if word not in message]
        if missing:
            return f"{missing} not in {message!r}"
        if "Traceback" in message or "services/" in message:
            return f"tells of the inside: {message!r}"
        return None


def send(host: str, port: int, case: Malformed, api_key: str, model: str) -> tuple[int, bytes]:
    """Send it; returns status and body."""
    headers: dict[str, str | None] = {
        "Authorization": f"Bearer {api_key}",
        "Content-Type": "application/json",
        **case.headers,
    }
    connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request(
            case.method,
            case.path.replace("$MODEL", model),
            case.body.replace(b"$MODEL", model.encode()),
            {name: value for name, value in headers.items() if value is not None},
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _chat(name: str, status: int, *words: str, messages: Any = HELLO, **fields: Any) -> Malformed:
    return Malformed(name, status, words, _json({"model": "$MODEL", "messages": messages, **fields}))


def _completion(name: str, status: int, *words: str, prompt: Any = "Hello", **fields: Any) -> Malformed:
    body = _json({"model": "$MODEL", "prompt": prompt, **fields})
    return Malformed(name, status, words, body, COMPLETIONS)


def _raw(name: str, status: int, *words: str, body: bytes = b"", **options: Any) -> Malformed:
    return Malformed(name, status, words, body, **options)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


GOOD = _json({"model": "$MODEL", "messages": HELLO, "max_tokens": 1})
DEEP = b"[" * 100_000
MESSAGE = b'{"model":"$MODEL","messages":[{"role":"user","content":%s}]}'

MALFORMED: tuple[Malformed, ...] = (
    # The body is not what it should be
    _raw("empty body", 400, "empty", "JSON", body=b""),
    _raw("half of an object", 400, "not valid JSON", body=b'{"model": "$MODEL", "messages": ['),
    _raw("not JSON", 400, "not valid JSON", body=b"hello"),
    _raw("form data", 400, "not valid JSON", body=b"model=a&messages=b"),
    _raw("single quotes", 400, "not valid JSON", body=b"{'model': 'a'}"),
    _raw("trailing comma", 400, "not valid JSON", body=b'{"model": "$MODEL",}'),
    _raw("two objects", 400, "not valid JSON", body=GOOD + GOOD),
    _raw("NaN", 400, "not valid JSON", body=GOOD[:-1] + b', "temperature": NaN}'),
    _raw("a control character", 400, "not valid JSON", body=MESSAGE % b'"a\x01b"'),
    _raw("a byte order mark", 400, "not valid JSON", body=b"\xef\xbb\xbf" + GOOD),
    _raw("a list", 400, "must be a JSON object", body=b"[]"),
    _raw("null", 400, "must be a JSON object", body=b"null"),
    _raw("a number", 400, "must be a JSON object", body=b"17"),
    _raw("invalid UTF-8", 400, "UTF-8", body=MESSAGE % b'"\xff\xfe"'),
    _raw("Latin-1", 400, "UTF-8", body=MESSAGE % '"Grüße"'.encode("latin-1")),
    _raw("half a surrogate pair", 400, "not valid JSON", body=MESSAGE % b'"\\ud83d"'),
    _raw("the other half", 400, "surrogate", body=MESSAGE % b'"\\udc00abcdefgh"'),
    _raw("nested without end", 400, "nested", body=b'{"model": "$MODEL", "tools": ' + DEEP),
    _raw("compressed", 400, "Content-Encoding", body=b"\x1f\x8b\x08\x00", headers={"Content-Encoding": "gzip"}),
    _raw("over the limit", 413, "limit", "send less", body=MESSAGE % (b'"' + b"x" * 5_000_000 + b'"')),
    # Who asks, and for what
    _raw("no key", 401, "Authorization: Bearer", body=GOOD, headers={"Authorization": None}),
    _raw("wrong key", 401, "not known", body=GOOD, headers={"Authorization": "Bearer sk-wrong"}),
    _raw("empty key", 401, "Bearer <key>", body=GOOD, headers={"Authorization": "Bearer "}),
    _raw("another scheme", 401, "Bearer <key>", body=GOOD, headers={"Authorization": "Basic dXNlcjpwYXNz"}),
    _raw("models without a key", 401, "key", method="GET", path="/v1/models", headers={"Authorization": None}),
    _raw("a malformed request id", 400, "X-Request-Id", body=GOOD, headers={"X-Request-Id": "a b"}),
    _raw("a request id too long", 400, "X-Request-Id", body=GOOD, headers={"X-Request-Id": "x" * 101}),
    _raw("no such path", 404, "/v1/embeddings", body=GOOD, path="/v1/embeddings"),
    _raw("GET to chat", 405, "POST", body=b"", method="GET"),
    _raw("DELETE of a model", 405, "GET", body=b"", method="DELETE", path="/v1/models/$MODEL"),
    _raw("no such model to see", 404, "no model", body=b"", method="GET", path="/v1/models/gpt-9"),
    _chat("unknown model", 404, "no model 'gpt-9'", "use", model="gpt-9"),
    _chat("empty model", 404, "no model", model=""),
    _chat("model of a wrong type", 400, "model", "str", model=7),
    _raw("no model", 400, "model", "missing", body=_json({"messages": HELLO})),
    # Messages
    _raw("no messages", 400, "messages", "missing", body=_json({"model": "$MODEL"})),
    _chat("empty messages", 400, "messages", "at least one", messages=[]),
    _chat("messages of a wrong type", 400, "messages", "array", messages="Hello"),
    _chat("a message that is a text", 400, "messages[0]", "object", messages=["Hello"]),
    _chat("no role", 400, "messages[0].role", "missing", messages=[{"content": "Hello"}]),
    _chat("unknown role", 400, "messages[0].role", "assistant", messages=[{"role": "robot", "content": "Hello"}]),
    _chat("a tool's message", 400, "messages[1].role", messages=[*HELLO, {"role": "tool", "content": "17"}]),
    _chat("content of a wrong type", 400, "messages[0].content", "str", messages=[{"role": "user", "content": 17}]),
    _chat("no content", 400, "messages[0].content", "missing", messages=[{"role": "user"}]),
    _chat(
        "an image", 400, "messages[0].content[0].type", "text only",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}],
    ),
    _chat("a part without text", 400, "content[0].text", messages=[{"role": "user", "content": [{"type": "text"}]}]),
    _chat(
        "a tool call", 400, "messages[0].tool_calls",
        messages=[{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}],
    ),
    _chat("a message's unknown field", 400, "messages[0].mood", messages=[{"role": "user", "content": "a", "mood": 1}]),
    _chat("too long", 400, "8192", "shorten", messages=[{"role": "user", "content": "Hello world. " * 10_000}]),
    _chat("far too long", 400, "characters", "shorten", messages=[{"role": "user", "content": "a b " * 900_000}]),
    # Parameters
    _chat("unknown field", 400, "unknown field temprature", "spelling", temprature=1),
    _chat("negative temperature", 400, "temperature", "between 0 and 2", temperature=-0.1),
    _chat("high temperature", 400, "temperature", "between 0 and 2", temperature=2.5),
    _chat("temperature as a text", 400, "temperature", "float", temperature="1"),
    _raw("temperature out of range", 400, "temperature", body=GOOD[:-1] + b', "temperature": 1e999}'),
    _chat("top_p of zero", 400, "top_p", "above 0", top_p=0),
    _chat("top_p above one", 400, "top_p", "at most 1", top_p=1.01),
    _chat("negative top_k", 400, "top_k", top_k=-1),
    _chat("frequency penalty", 400, "frequency_penalty", "between -2 and 2", frequency_penalty=2.1),
    _chat("presence penalty", 400, "presence_penalty", "between -2 and 2", presence_penalty=-3),
    _chat("seed beyond 64 bits", 400, "seed", seed=2**63),
    _chat("seed as a text", 400, "seed", "int", seed="lucky"),
    _chat("max_tokens of zero", 400, "max_tokens", "between 1", max_tokens=0),
    _chat("negative max_tokens", 400, "max_tokens", "between 1", max_tokens=-5),
    _chat("huge max_tokens", 400, "max_tokens", max_tokens=10**9),
    _chat("max_tokens beyond any integer", 400, "max_tokens", max_tokens=10**40),
    _chat("max_tokens that is not whole", 400, "max_tokens", "int", max_tokens=1.5),
    _chat("max_completion_tokens of zero", 400, "max_completion_tokens", max_completion_tokens=0),
    _chat("two different limits", 400, "max_completion_tokens", max_tokens=1, max_completion_tokens=2),
    _chat("an empty stop string", 400, "stop", stop=""),
    _chat("five stop strings", 400, "stop", "at most 4", stop=["a", "b", "c", "d", "e"]),
    _chat("stop of a wrong type", 400, "stop", stop=17),
    _chat("stream as a text", 400, "stream", "bool", stream="yes"),
    _chat("stream_options alone", 400, "stream_options", "stream: true", stream_options={"include_usage": True}),
    _chat("unknown stream option", 400, "stream_options.foo", stream=True, stream_options={"foo": 1}),
    _chat("top_logprobs alone", 400, "top_logprobs", "logprobs: true", top_logprobs=2),
    _chat("too many top_logprobs", 400, "top_logprobs", "between 0 and 20", logprobs=True, top_logprobs=21),
    # What is not served
    _chat("two choices", 400, "n is not served", n=2),
    _chat("n as true", 400, "n is not served", n=True),
    _chat("tools", 400, "tools", tools=[{"type": "function", "function": {"name": "f"}}]),
    _chat("functions", 400, "functions", functions=[{"name": "f"}]),
    _chat("JSON mode", 400, "response_format", response_format={"type": "json_object"}),
    _chat("logit bias", 400, "logit_bias", logit_bias={"17": 100}),
    _chat("audio", 400, "modalities", modalities=["text", "audio"]),
    _chat("prediction", 400, "prediction", prediction={"type": "content", "content": "x"}),
    # Completions
    _raw("no prompt", 400, "prompt", "missing", body=_json({"model": "$MODEL"}), path=COMPLETIONS),
    _completion("empty prompt", 400, "prompt", "empty", prompt=""),
    _completion("empty list", 400, "prompt", "empty", prompt=[]),
    _completion("list of an empty text", 400, "prompt", "empty", prompt=[""]),
    _completion("several prompts", 400, "prompt", "one prompt", prompt=["a", "b"]),
    _completion("several lists of ids", 400, "prompt", "one prompt", prompt=[[1, 2], [3]]),
    _completion("an id beyond the vocabulary", 400, "prompt", "from 0 to", prompt=[1, 2, 10**7]),
    _completion("a negative id", 400, "prompt", "from 0 to", prompt=[-1]),
    _completion("an id that is not whole", 400, "prompt", "from 0 to", prompt=[1.5]),
    _completion("ids that are booleans", 400, "prompt", "from 0 to", prompt=[True, False]),
    _completion("prompt of a wrong type", 400, "prompt", prompt=17),
    _completion("too many ids", 400, "8192", "together", prompt=[17] * 8192),
    _completion("echo", 400, "echo", echo=True),
    _completion("suffix", 400, "suffix", suffix="end"),
    _completion("best of", 400, "best_of", best_of=3),
    _completion("too many logprobs", 400, "logprobs", "between 0 and 20", logprobs=21),
    _completion("messages to completions", 400, "unknown field messages", messages=HELLO),
)  # fmt: skip
