"""What the stack is asked: prompts on which services of this kind have been seen to fail."""

from __future__ import annotations

from typing import NamedTuple

LONG_LINES = 68  # about 1,500 tokens with the tokenizer of SmolLM2
LINE_TOKENS = 25  # of one line
ROOM = 256  # tokens kept free for the rest of the prompt and the answer
SPECIAL = (
    'Say what this is: 😀 👩‍👩‍👧‍👦 🇪🇺 你好，世界。 {"key": ["v\\"", null, 1e-3]} <|not_a_token|> zero\u200bwidth\u200d '
    "\u202bשלום, مرحبا\u202c Ünïcödé e\u0301 \\n \t end"
)


class Prompt(NamedTuple):
    """One conversation."""

    name: str
    messages: tuple[tuple[str, str], ...]  # role, text
    max_tokens: int


def prompts(salt: str, max_model_len: int | None) -> list[Prompt]:
    """The conversations; `salt` makes them new, so that no cache of an earlier run answers."""
    greeting = ("system", f"You are a helpful assistant. Session {salt}.")
    return [
        Prompt("short", (greeting, ("user", "What is the capital of France?")), 32),
        Prompt("long", (greeting, ("user", _long(max_model_len))), 64),
        Prompt("special characters", (greeting, ("user", SPECIAL)), 48),
        Prompt(
            "multi-turn",
            (
                greeting,
                ("user", "My name is Ada and I like tea."),
                ("assistant", "Nice to meet you, Ada! Tea is a good choice."),
                ("user", "Tell me in a few sentences how to make it, and call me by my name."),
            ),
            64,
        ),
    ]


def _long(max_model_len: int | None) -> str:
    lines = LONG_LINES
    if max_model_len is not None:
        lines = max(1, min(lines, (max_model_len - ROOM) // LINE_TOKENS))
    log = (f"Entry {n}: station {n * 7 % 31} reported a level of {n * 37 % 1000} units at noon." for n in range(lines))
    return "Here is a log.\n" + "\n".join(log) + "\nSum up in a paragraph what it says."
