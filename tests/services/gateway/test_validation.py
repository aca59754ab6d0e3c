"""What good requests become; bad ones are in malformed.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.common.errors import ContextTooLong, InvalidRequest
from services.gateway import validation
from services.gateway.api_types import NEUTRAL, NEUTRAL_IN_MESSAGE, ChatMessage, ChatRequest, CompletionRequest
from services.gateway.validation import Limits

LIMITS = Limits(max_model_len=100, max_answer=50, vocab_size=1000)
CHAT = msgspec.json.Decoder(ChatRequest)
COMPLETION = msgspec.json.Decoder(CompletionRequest)


def chat(**fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}
    return validation.decode(msgspec.json.encode(body), CHAT)


def test_defaults() -> None:
    parameters = validation.chat_parameters(chat(), LIMITS)
    assert (parameters.temperature, parameters.top_p, parameters.top_k) == (1.0, 1.0, 0)
    assert (parameters.max_tokens, parameters.seed, parameters.logprobs, parameters.stop) == (None, None, None, ())
    assert not parameters.stream


def test_what_is_asked_for() -> None:
    parameters = validation.chat_parameters(
        chat(
            temperature=0, top_p=0.5, top_k=7, seed=-1, stop=["a", "b"], max_completion_tokens=9, logprobs=True,
            top_logprobs=3, stream=True, stream_options={"include_usage": True}, ignore_eos=True,
            frequency_penalty=-2, presence_penalty=2,
        ),
        LIMITS,
    )  # fmt: skip
    assert (parameters.temperature, parameters.top_p, parameters.top_k, parameters.seed) == (0.0, 0.5, 7, -1)
    assert (parameters.stop, parameters.max_tokens, parameters.logprobs) == (("a", "b"), 9, 3)
    assert (parameters.stream, parameters.include_usage, parameters.ignore_eos) == (True, True, True)
    assert (parameters.frequency_penalty, parameters.presence_penalty) == (-2.0, 2.0)


def test_harmless_fields_pass() -> None:
    request = chat(
        user="u", metadata={"a": "b"}, store=False, service_tier="auto", parallel_tool_calls=True, n=1, tools=[],
        response_format={"type": "text"}, logit_bias={}, modalities=["text"], tool_choice="none", prediction=None,
    )  # fmt: skip
    validation.chat_parameters(request, LIMITS)
    validation.conversation([ChatMessage(role="assistant", content="x", refusal=None, annotations=[], tool_calls=[])])


def test_every_field_that_is_not_served_has_its_neutral_values() -> None:
    """A field of type Any that is missing in the table would be ignored in silence."""
    for struct, table in ((ChatRequest, NEUTRAL), (CompletionRequest, NEUTRAL), (ChatMessage, NEUTRAL_IN_MESSAGE)):
        unserved = {field.name for field in msgspec.structs.fields(struct) if field.type is Any}
        assert unserved <= set(table), struct


def test_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert validation.conversation([ChatMessage(role="user", content=parts)]) == [{"role": "user", "content": "a\nb"}]


@pytest.mark.parametrize(
    ("value", "prompt"), [("a", "a"), (["a"], "a"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2]), ([999], [999])]
)
def test_prompts(value: Any, prompt: Any) -> None:
    assert validation.prompt(value, LIMITS) == prompt


def test_the_answers_room() -> None:
    assert validation.answer_tokens(10, None, LIMITS) == 50
    assert validation.answer_tokens(80, None, LIMITS) == 20
    assert validation.answer_tokens(80, 20, LIMITS) == 20
    with pytest.raises(ContextTooLong, match=r"100 tokens.*80.*21.*101"):
        validation.answer_tokens(80, 21, LIMITS)
    with pytest.raises(ContextTooLong):
        validation.answer_tokens(100, None, LIMITS)


def test_completions_of_one_prompt() -> None:
    request = validation.decode(b'{"model":"m","prompt":[[1]],"logprobs":5,"best_of":1,"echo":false}', COMPLETION)
    assert validation.completion_parameters(request, LIMITS).logprobs == 5
    with pytest.raises(InvalidRequest, match="best_of"):
        validation.completion_parameters(
            validation.decode(b'{"model":"m","prompt":"x","best_of":true}', COMPLETION), LIMITS
        )
