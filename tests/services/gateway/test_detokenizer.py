"""Text comes out whole, once, and never past a stop string, however tokens and pieces are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.gateway.detokenizer import Detokenizer, StopStrings
from services.gateway.tokenization import Tokenization

FIXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text() | st.lists(
    st.sampled_from(["😀", "👩‍🚀", "中文", "é", " ", "\n", "<|im_end|>", "العربية", "a", "�"])
).map("".join)


def pieces_of(tokenization: Tokenization, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenization.tokenizer)
    return [*(detokenizer.feed(token) for token in ids), detokenizer.flush()]


@FIXED
@given(text=TEXTS)
def test_pieces_of_a_text_make_the_text(tokenization: Tokenization, text: str) -> None:
    ids = tokenization.tokenizer.encode(text, add_special_tokens=False).ids
    pieces = pieces_of(tokenization, ids)
    assert "".join(pieces) == tokenization.tokenizer.decode(ids, skip_special_tokens=True)
    for piece in pieces:
        piece.encode()  # no half of a surrogate pair


@FIXED
@given(ids=st.lists(st.integers(0, 49151), max_size=40))
def test_pieces_of_any_tokens(tokenization: Tokenization, ids: list[int]) -> None:
    """Also of sequences that are no valid text."""
    assert "".join(pieces_of(tokenization, ids)) == tokenization.tokenizer.decode(ids, skip_special_tokens=True)


def test_a_character_in_several_tokens_comes_whole(tokenization: Tokenization) -> None:
    ids = tokenization.tokenizer.encode("👩‍🚀", add_special_tokens=False).ids
    pieces = pieces_of(tokenization, ids)
    assert "�" not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) <= 3 < len(ids)


def test_half_a_character_at_the_end_is_shown(tokenization: Tokenization) -> None:
    ids = tokenization.tokenizer.encode("ab😀", add_special_tokens=False).ids[:-1]
    assert "".join(pieces_of(tokenization, ids)) == "ab�"


@pytest.mark.parametrize(
    ("stops", "pieces", "out"),
    [
        (["END"], ["abc EN", "D def"], "abc "),
        (["END"], ["abc EN", "X def"], "abc ENX def"),
        (["END"], ["abc EN"], "abc EN"),
        (["a"], ["a"], ""),
        (["aab"], ["a", "a", "a", "b", "c"], "a"),
        (["abcd", "bc"], ["abc", "d"], "a"),
        (["abcd", "bc"], ["abcd"], "a"),
        (["\n\n", "\nUser:"], ["one\n", "User", ":", " two"], "one"),
        (["。"], ["你好", "。再见"], "你好"),
        ([], ["abc"], "abc"),
    ],
)
def test_stop_strings(stops: list[str], pieces: list[str], out: str) -> None:
    matcher = StopStrings(stops)
    assert "".join([*map(matcher.feed, pieces), matcher.flush()]) == out
    assert matcher.found == (out != "".join(pieces))


@FIXED
@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    cuts=st.lists(st.integers(0, 30), max_size=8),
)
def test_the_cut_does_not_matter(text: str, stops: list[str], cuts: list[int]) -> None:
    """Fed in any pieces, the output is that of the text fed at once, and nothing given out is ever taken back."""
    bounds = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    whole, cut = StopStrings(stops), StopStrings(stops)
    expected = whole.feed(text) + whole.flush()
    got = "".join([cut.feed(text[a:b]) for a, b in itertools.pairwise(bounds)]) + cut.flush()
    assert got == expected
    assert cut.found == whole.found == any(stop in text for stop in stops)
    assert not any(stop in got for stop in stops)


@FIXED
@given(text=st.text("abc", max_size=20), stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3))
def test_no_more_is_held_back_than_needed(text: str, stops: list[str]) -> None:
    """What is held is the beginning of a stop string."""
    matcher = StopStrings(stops)
    given_out = matcher.feed(text)
    if not matcher.found:
        held = text[len(given_out) :]
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)
