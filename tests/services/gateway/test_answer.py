"""The answer's text and its logprobs, step by step."""

from __future__ import annotations

from services.common.wire import Logprobs
from services.gateway import logprobs
from services.gateway.answer import LOWEST, Answer, Piece
from services.gateway.tokenization import Tokenization
from services.gateway.upstream import Step

TEXT = "One 😀 two. End of it."


def steps_of(tokenization: Tokenization, text: str, finish: str | None = "length") -> list[Step]:
    ids = tokenization.tokenizer.encode(text, add_special_tokens=False).ids
    steps = [
        Step(
            [token],
            Logprobs([f"token_id:{token}"], [-float(n)], [{f"token_id:{token}": -float(n), "token_id:17": -9.0}]),
        )
        for n, token in enumerate(ids)
    ]
    steps[-1].finish_reason = finish
    return steps


def feed(answer: Answer, steps: list[Step]) -> list[Piece]:
    return [answer.feed(step) for step in steps]


def test_logprobs_come_with_their_text(tokenization: Tokenization) -> None:
    steps = steps_of(tokenization, TEXT)
    answer = Answer(tokenization, ())
    pieces = feed(answer, steps)
    text = ""
    for piece in pieces:
        text += piece.text
        assert all(entry.offset < len(text) for entry in piece.logprobs)
    assert text == TEXT
    entries = [entry for piece in pieces for entry in piece.logprobs]
    assert [entry.token_id for entry in entries] == [step.token_ids[0] for step in steps]
    assert (answer.finish_reason, answer.tokens) == ("length", len(steps))


def test_a_stop_string_cuts_text_and_logprobs(tokenization: Tokenization) -> None:
    answer = Answer(tokenization, (". End",))
    pieces = feed(answer, steps_of(tokenization, TEXT, None))
    assert "".join(piece.text for piece in pieces) == "One 😀 two"
    entries = [entry for piece in pieces for entry in piece.logprobs]
    assert b"".join(tokenization.token_bytes(entry.token_id) for entry in entries).decode() == "One 😀 two"
    assert answer.finish_reason == "stop"
    assert answer.stopped_early
    assert answer.tokens < len(steps_of(tokenization, TEXT))


def test_how_tokens_are_grouped_does_not_matter(tokenization: Tokenization) -> None:
    """What one read brings is chance; text, logprobs and the count of tokens are not."""
    single = steps_of(tokenization, TEXT)
    all_at_once = Step(
        [step.token_ids[0] for step in single],
        Logprobs(
            [name for step in single for name in (step.logprobs or Logprobs()).tokens],
            [value for step in single for value in (step.logprobs or Logprobs()).token_logprobs],
            [top for step in single for top in (step.logprobs or Logprobs()).top_logprobs],
        ),
        "length",
    )
    for stop in ((), ("two",), ("it.",)):
        one, other = Answer(tokenization, stop), Answer(tokenization, stop)
        pieces, whole = feed(one, single), other.feed(all_at_once)
        assert "".join(piece.text for piece in pieces) == whole.text
        assert [entry for piece in pieces for entry in piece.logprobs] == whole.logprobs
        assert (one.tokens, one.finish_reason) == (other.tokens, other.finish_reason)


def test_special_tokens_are_not_shown(tokenization: Tokenization) -> None:
    answer = Answer(tokenization, ())
    piece = answer.feed(Step([2], Logprobs(["token_id:2"], [-0.1], [{"token_id:2": -0.1}]), "stop"))
    assert (piece.text, piece.logprobs, answer.tokens, answer.finish_reason) == ("", [], 1, "stop")


def test_the_two_shapes(tokenization: Tokenization) -> None:
    answer = Answer(tokenization, ())
    entries = [entry for piece in feed(answer, steps_of(tokenization, "a 😀")) for entry in piece.logprobs]
    chat = logprobs.for_chat(entries, tokenization)
    assert bytes(byte for token in chat.content for byte in token.bytes).decode() == "a 😀"
    assert [token.logprob for token in chat.content] == [-float(n) for n in range(len(entries))]
    assert all(token.top_logprobs[1].token == tokenization.token_bytes(17).decode() for token in chat.content)
    text = logprobs.for_completion(entries, tokenization)
    assert text.tokens[0] == "a"
    assert text.text_offset[0] == 0
    assert sorted(text.text_offset) == text.text_offset
    assert text.top_logprobs is not None
    assert text.top_logprobs[0]["a"] == 0.0


def test_impossible_tokens_are_written_as_a_number(tokenization: Tokenization) -> None:
    piece = Answer(tokenization, ()).feed(Step([30], Logprobs(["token_id:30"], [float("-inf")]), "length"))
    assert piece.logprobs[0].logprob == LOWEST
