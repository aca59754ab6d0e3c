"""Killing any one process costs no client an error: a pause, and the very same text."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from tests.e2e.stack import MODEL, Stack, wait_until

PROMPT = "The history of the lighthouse begins"
TOKENS = 80


def _text(stack: Stack, on_piece: Callable[[int], None] = lambda _count: None) -> tuple[str, str | None]:
    """A streamed greedy answer and its finish reason; `on_piece` is called with the number of pieces so far."""
    text, finish = "", None
    stream = stack.client().completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=TOKENS, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    for count, piece in enumerate(stream, 1):
        text += piece.choices[0].text
        finish = piece.choices[0].finish_reason or finish
        on_piece(count)
    return text, finish


@pytest.fixture(scope="module")
def undisturbed(running: Stack) -> str:
    text, finish = _text(running)
    assert finish == "length"
    return text


@pytest.mark.parametrize(
    "roles",
    [["decode-worker-0"], ["prefill-worker-0", "scheduler-0", "scheduler-1", "kv-0"]],
    ids=["decode worker", "all that it has done with"],
)
def test_sigkill_in_the_middle_of_an_answer(stack: Stack, undisturbed: str, roles: list[str]) -> None:
    before = stack.pids()
    killed_at: list[int] = []
    pieces = [0]

    def kill_once(count: int) -> None:
        pieces[0] = count
        if count == 20:
            for role in roles:
                os.kill(before[role], signal.SIGKILL)
            killed_at.append(count)

    assert _text(stack, kill_once) == (undisturbed, "length")
    assert killed_at
    assert pieces[0] > 40, "the answer was nearly over when the roles were killed"
    stack.wait_ready()
    assert stack.restarted_since(before) == set(roles), "supervisord did not bring them back"


@pytest.mark.parametrize("roles", [["prefill-worker-0", "scheduler-0"], ["decode-worker-0"]], ids=" and ".join)
def test_sigkill_while_many_prompts_are_under_way(stack: Stack, undisturbed: str, roles: list[str]) -> None:
    """The victims die with requests in every stage: waiting, in prefill, between the legs, in decode."""
    results: list[tuple[str, str | None]] = []
    failures: list[Exception] = []

    def ask() -> None:
        try:
            results.append(_text(stack))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    wait_until("requests under way", lambda: stack.metric("decode-worker-0", "vllm:num_requests_running") > 0)
    pids = stack.pids()
    for role in roles:
        os.kill(pids[role], signal.SIGKILL)
    for thread in threads:
        thread.join(180)
    assert not failures
    assert results == [(undisturbed, "length")] * 8


def test_roles_killed_while_idle_come_back(stack: Stack, undisturbed: str) -> None:
    before = stack.pids()
    roles = {name for name in before if "worker" not in name}  # that they come back is seen above, and takes longer
    for role in roles:
        os.kill(before[role], signal.SIGKILL)
    wait_until("all are back", lambda: stack.restarted_since(before) == roles)
    stack.wait_ready()
    assert _text(stack) == (undisturbed, "length")
    assert stack.run("preview", "--expect-no-changes", check=False).returncode == 0
