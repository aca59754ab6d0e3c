"""Clients that stream answers all the while something is done to the stack, and what became of each request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import openai

from tests.kubernetes.stack import ClusterStack, eventually

# Of different lengths, one of several KV blocks; none comes to a tie between two tokens.
PROMPTS = (
    "The history of the lighthouse begins",
    "Once upon a time there was a bridge that",
    "A recipe for bread: first you take the flour, then",
    "On a winter morning the engineer repaired the old clock of the market. " * 12,
)
TOKENS = 32
# A client gives up well after the gateway's deadline: what is not answered by then hangs.
GIVE_UP_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """One request: when it was asked by the monotonic clock, seconds it took, what came, the error if it had one."""

    prompt: str
    started: float
    seconds: float
    text: str
    error: Exception | None = None

    @property
    def is_clean(self) -> bool:
        """Whether its error is one that an OpenAI client understands: a code of a kind that may be retried."""
        error = self.error
        if isinstance(error, openai.APIStatusError):
            return error.status_code in (429, 503, 504) and bool(error.code)
        # An event of a stream that had begun.
        return type(error) is openai.APIError and bool(error.code)


@dataclass
class Streams:
    """What `count` clients have seen so far, each asking one request after the other."""

    expected: dict[str, str]
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failed(self) -> list[Outcome]:
        """Requests that ended with an error."""
        return [one for one in self.outcomes if one.error is not None]

    @property
    def wrong(self) -> list[Outcome]:
        """Requests whose text is not what it was on the stack at rest; of failed ones, not the beginning of that."""
        return [
            one
            for one in self.outcomes
            if (
                one.text != self.expected[one.prompt]
                if one.error is None
                else not self.expected[one.prompt].startswith(one.text)
            )
        ]

    def more(self, count: int, seconds: float) -> None:
        """Wait until `count` more requests have been answered well that were asked from now on."""
        now = time.monotonic()

        def enough() -> bool:
            return sum(one.error is None and one.started > now for one in self.outcomes) >= count

        eventually(f"{count} more answers", enough, seconds)


def ask(client: openai.OpenAI, model: str, prompt: str, on_text: Callable[[str], None] = lambda _text: None) -> str:
    """A greedy answer of TOKENS tokens, streamed; `on_text` is called with what has come so far."""
    text, finish = "", None
    stream = client.completions.create(
        model=model, prompt=prompt, max_tokens=TOKENS, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    with stream:
        for piece in stream:
            text += piece.choices[0].text
            finish = piece.choices[0].finish_reason or finish
            on_text(text)
    assert finish == "length", f"an answer that ends with {finish!r}"
    return text


def answers(stack: ClusterStack) -> dict[str, str]:
    """Prompt → its text, on a stack that is at rest."""
    with stack.client() as client:
        return {prompt: ask(client, stack.model.name, prompt) for prompt in PROMPTS}


@contextmanager
def streaming(stack: ClusterStack, expected: dict[str, str], count: int = 8) -> Iterator[Streams]:
    """`count` clients at work for as long as the block runs; at its end each finishes what it has asked."""
    seen, over = Streams(expected), threading.Event()
    deadline = float(stack.config["gateway"]["requestTimeoutSeconds"]) + GIVE_UP_SECONDS

    def work(number: int) -> None:
        with stack.client(deadline) as client:
            while not over.is_set():
                prompt = PROMPTS[number % len(PROMPTS)]
                number += 1
                _note(seen, client, stack.model.name, prompt)
                if seen.outcomes[-1].error is not None:
                    over.wait(0.5)

    threads = [threading.Thread(target=work, args=(number,), name=f"stream-{number}") for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        eventually("streams at work", lambda: len(seen.outcomes) >= count, 120)
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join(deadline)
    assert not [thread for thread in threads if thread.is_alive()], "a request that never ends"


def _note(seen: Streams, client: openai.OpenAI, model: str, prompt: str) -> None:
    started, text = time.monotonic(), ""

    def keep(so_far: str) -> None:
        nonlocal text
        text = so_far

    error: Exception | None = None
    try:
        ask(client, model, prompt, keep)
    except Exception as failure:  # whatever it is, it is what the test is about
        error = failure
    seen.outcomes.append(Outcome(prompt, started, time.monotonic() - started, text, error))
