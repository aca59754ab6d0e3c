"""The gateway end to end over real sockets: answers, streams, errors, and what is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.services.gateway.world import TEXT, world


def test_chat_whole_and_streamed(tmp_path: Path, model_path: Path, scheduler_urls: list[str]) -> None:
    async def main() -> None:
        async with world(tmp_path, model_path, scheduler_urls) as here:
            client = here.client
            messages = [{"role": "user", "content": "Hello"}]
            whole = await client.chat.completions.create(model=here.model, messages=messages)
            assert whole.choices[0].message.content == TEXT
            assert whole.choices[0].finish_reason == "stop"
            assert whole.usage is not None
            assert whole.usage.completion_tokens == len(here.answer)
            assert whole.usage.prompt_tokens_details.cached_tokens == 3
            assert whole.system_fingerprint == "r1"
            stream = await client.chat.completions.create(
                model=here.model, messages=messages, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert chunks[0].choices[0].delta.role == "assistant"
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
            assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
            assert chunks[-1].usage == whole.usage
            await here.at_rest()

    asyncio.run(main())
