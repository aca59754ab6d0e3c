"""The gateway end to end over real sockets, asked by the official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.services.common.serving import until
from tests.services.gateway.world import TEXT, World, world

MESSAGES: list[Any] = [{"role": "user", "content": "Hello"}]
Run = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path, model_path: Path, scheduler_urls: list[str]) -> Run:
    """Run a test in a world, and see that it is at rest afterwards."""

    def start(test: Callable[[World], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            async with world(tmp_path, model_path, scheduler_urls, **options) as here:
                await test(here)
                await here.at_rest()

        asyncio.run(main())

    return start


def test_chat_whole_and_streamed(run: Run) -> None:
    async def test(here: World) -> None:
        chat = here.client.chat.completions
        whole = await chat.create(model=here.model, messages=MESSAGES)
        assert whole.choices[0].message.content == TEXT
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage is not None
        assert whole.usage.completion_tokens == len(here.answer)
        assert whole.usage.prompt_tokens_details is not None
        assert whole.usage.prompt_tokens_details.cached_tokens == 3
        assert whole.system_fingerprint == "r1"
        assert whole.choices[0].logprobs is None
        stream = await chat.create(
            model=here.model, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert chunks[-1].usage == whole.usage

    run(test)


def test_completions_whole_and_streamed(run: Run) -> None:
    async def test(here: World) -> None:
        for prompt in ("Hello", ["Hello"], [17, 18], [[17, 18]]):
            whole = await here.client.completions.create(model=here.model, prompt=prompt, logprobs=2)
            assert whole.choices[0].text == TEXT
            assert whole.choices[0].logprobs is not None
            assert len(whole.choices[0].logprobs.tokens or []) == len(here.answer)
        assert here.prefill[0].visits[-1].body.prompt == [17, 18]
        stream = await here.client.completions.create(model=here.model, prompt="Hello", stream=True, max_tokens=9)
        chunks = [chunk async for chunk in stream]
        assert TEXT.startswith("".join(chunk.choices[0].text for chunk in chunks).rstrip("�"))
        assert chunks[-1].choices[0].finish_reason == "length"

    run(test)


def test_logprobs_of_a_chat(run: Run) -> None:
    """Of every token, the first included, and the same streamed."""

    async def test(here: World) -> None:
        chat = here.client.chat.completions
        options: dict[str, Any] = {"model": here.model, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2}
        whole = await chat.create(**options)
        shown = whole.choices[0].logprobs
        assert shown is not None
        assert shown.content is not None
        assert bytes(byte for token in shown.content for byte in token.bytes or []).decode() == TEXT
        assert all(len(token.top_logprobs) == 2 for token in shown.content)
        stream = await chat.create(**options, stream=True)
        pieces = [c.choices[0].logprobs.content or [] async for c in stream if c.choices[0].logprobs is not None]
        assert [token for piece in pieces for token in piece] == shown.content

    run(test)


@pytest.mark.parametrize("streamed", [False, True])
def test_stop_strings(run: Run, streamed: bool) -> None:
    """The worker's stream is closed as soon as one is found, and nothing of it is shown."""

    async def test(here: World) -> None:
        here.decode[0].pause = 0.01
        options: dict[str, Any] = {"model": here.model, "messages": MESSAGES, "stop": ["never", " token by"]}
        if streamed:
            stream = await here.client.chat.completions.create(**options, stream=True)
            choices = [chunk.choices[0] async for chunk in stream]
            text, reason = "".join(c.delta.content or "" for c in choices), choices[-1].finish_reason
        else:
            whole = await here.client.chat.completions.create(**options)
            text, reason = whole.choices[0].message.content or "", whole.choices[0].finish_reason
        assert text == TEXT[: TEXT.index(" token by")]
        assert reason == "stop"
        visit = here.decode[0].visits[0]
        await until(lambda: visit.gone_at is not None, 1.0)

    run(test)


def test_models(run: Run) -> None:
    async def test(here: World) -> None:
        assert [model.id async for model in here.client.models.list()] == [here.model]
        assert (await here.client.models.retrieve(here.model)).owned_by == "diphase"
        with pytest.raises(openai.NotFoundError):
            await here.client.models.retrieve("other/model")

    run(test)


def test_errors_as_the_client_knows_them(run: Run) -> None:
    async def test(here: World) -> None:
        chat = here.client.chat.completions
        with pytest.raises(openai.BadRequestError) as caught:
            await chat.create(model=here.model, messages=MESSAGES, temperature=3)
        assert caught.value.param == "temperature"
        assert caught.value.request_id is not None
        with pytest.raises(openai.NotFoundError):
            await chat.create(model="other", messages=MESSAGES)
        with pytest.raises(openai.AuthenticationError):
            await here.client.with_options(api_key="sk-wrong").models.list()
        here.prefill[0].faults.append("refuse")
        with pytest.raises(openai.BadRequestError):
            await chat.create(model=here.model, messages=MESSAGES, stream=True)
        here.decode[0].faults.append("refuse")
        stream = await chat.create(model=here.model, messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="does not like it"):
            [chunk async for chunk in stream]

    run(test)


def test_many_at_once(run: Run) -> None:
    """Different lengths, streamed and not, a tenth of them hanging up: the others' answers are right."""

    async def test(here: World) -> None:
        for worker in here.workers:
            worker.pause = 0.002

        async def one(i: int) -> None:
            body = {"messages": MESSAGES, "stream": i % 2 == 0, "max_tokens": 5 + i % 20}
            task = asyncio.create_task(here.post(body))
            if i % 10 == 3:
                await asyncio.sleep(0.01 * (i % 7))
                task.cancel()
                return
            reply = await task
            assert reply.status == 200
            if i % 2:
                answer = json.loads(reply.body)
                assert TEXT.startswith(answer["choices"][0]["message"]["content"].rstrip("�"))
                assert answer["usage"]["completion_tokens"] == 5 + i % 20

        limit = asyncio.Semaphore(16)

        async def limited(i: int) -> None:
            async with limit:
                await one(i)

        await asyncio.gather(*map(limited, range(120)))

    run(test, prefill=2, decode=2, worker={"max_running": 16})


def test_metrics_have_their_names(run: Run) -> None:
    async def test(here: World) -> None:
        await here.post({"messages": MESSAGES})
        text = (await here.http.request("GET", here.served.url + "/metrics", timeout=5)).body.decode()
        of = f'gen_ai_operation_name="chat",gen_ai_request_model="{here.model}"'
        assert f"gen_ai_server_time_to_first_token_seconds_count{{{of}}} 1.0" in text
        assert f"gen_ai_server_time_per_output_token_seconds_count{{{of}}} 1.0" in text
        used = f'gen_ai_client_token_usage_sum{{{of},gen_ai_token_type="output"}} {len(here.answer)}.0'
        assert used in text
        assert "diphase_gateway_inflight_requests 0.0" in text

    run(test)


def test_token_ids_on_request(run: Run) -> None:
    async def test(here: World) -> None:
        chat, extra = here.client.chat.completions, {"return_token_ids": True}
        whole = await chat.create(model=here.model, messages=MESSAGES, extra_body=extra)
        ids = whole.choices[0].token_ids
        assert len(ids) == whole.usage.completion_tokens
        stream = await chat.create(model=here.model, messages=MESSAGES, stream=True, extra_body=extra)
        streamed = [i async for chunk in stream for i in getattr(chunk.choices[0], "token_ids", None) or []]
        assert streamed == ids
        plain = await chat.create(model=here.model, messages=MESSAGES)
        assert not hasattr(plain.choices[0], "token_ids")

    run(test)
