"""A changed parameter restarts only the roles that read it, drained, under running streams."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.stack import MODEL, Stack, wait_until

SCHEDULERS = ("scheduler-0", "scheduler-1")
PROMPT = "A letter from the mountains:"


def _text(stack: Stack) -> str:
    stream = stack.client().completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=80, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    return "".join(piece.choices[0].text for piece in stream)


@pytest.fixture(scope="module")
def expected(running: Stack) -> str:
    return _text(running)


@pytest.mark.parametrize(
    ("changes", "restarted"),
    [
        ({"decode": {"idleWaitMs": 10.0}, "scheduler": {"maxQueue": 128}}, {"decode-worker-0", *SCHEDULERS}),
        ({"kv": {"transport": "tcp"}}, {"prefill-worker-0", "decode-worker-0"}),
    ],
    ids=["decode and scheduler", "tcp"],
)
def test_only_its_readers_restart(
    stack: Stack, expected: str, changes: dict[str, dict[str, Any]], restarted: set[str]
) -> None:
    before = stack.pids()
    with ThreadPoolExecutor(4) as pool:
        streams: list[Future[str]] = [pool.submit(_text, stack) for _ in range(4)]
        wait_until("running", lambda: stack.metric("decode-worker-0", "vllm:num_requests_running") > 0)
        for group, values in changes.items():
            stack.config.setdefault(group, {}).update(values)
        stack.write_config()
        stack.up()
        assert [stream.result(120) for stream in streams] == [expected] * 4
    assert stack.restarted_since(before) == restarted


def test_a_preview_sees_a_change_and_no_other(stack: Stack) -> None:
    """Of a stack that was changed and changed back."""
    assert stack.run("preview", "--expect-no-changes", check=False).returncode == 0
    stack.config["local"] = {"logLevel": "debug"}
    stack.write_config()
    done = stack.run("preview", "--expect-no-changes", check=False)
    del stack.config["local"]
    stack.write_config()
    assert done.returncode == 1, "the preview did not see the change"
    assert "no changes were expected, but there are" in done.stderr
