"""A changed parameter restarts only the roles that read it, drained, under running streams."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.stack import MODEL, Stack, wait_until

PROMPT = "A letter from the mountains:"


def _text(stack: Stack) -> str:
    stream = stack.client().completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=80, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    return "".join(piece.choices[0].text for piece in stream)


@pytest.mark.parametrize(
    ("group", "key", "value", "restarted"),
    [
        ("prefill", "maxBatchTokens", 1024, {"prefill-worker-0"}),
        ("decode", "idleWaitMs", 10.0, {"decode-worker-0"}),
        ("scheduler", "maxQueue", 128, {"scheduler-0", "scheduler-1"}),
    ],
)
def test_only_its_readers_restart(stack: Stack, group: str, key: str, value: Any, restarted: set[str]) -> None:
    before = {role["name"]: role["pid"] for role in stack.status()["roles"]}
    expected = _text(stack)
    with ThreadPoolExecutor(4) as pool:
        streams: list[Future[str]] = [pool.submit(_text, stack) for _ in range(4)]
        wait_until("running", lambda: stack.metric("decode-worker-0", "vllm:num_requests_running") > 0)
        stack.config.setdefault(group, {})[key] = value
        stack.write_config()
        preview = stack.run("preview", "--expect-no-changes", check=False)
        assert preview.returncode != 0, "the preview did not see the change"
        stack.up()
        assert [stream.result(120) for stream in streams] == [expected] * 4
    after = {role["name"]: role["pid"] for role in stack.status()["roles"]}
    assert {name for name in after if after[name] != before[name]} == restarted
    assert stack.run("preview", "--expect-no-changes", check=False).returncode == 0
