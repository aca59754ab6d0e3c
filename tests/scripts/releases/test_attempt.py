"""A try that the history does not know of has not ended, unless something later settled the matter."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scripts.releases.attempt import Attempt, decode, encode, unfinished
from scripts.releases.updates import Update
from tests.scripts.releases.story import BEGIN, commit, update

TRY = Attempt("abc", BEGIN + timedelta(hours=2, minutes=30), commit("B"), True)


@pytest.mark.parametrize(
    ("story", "open_"),
    [
        pytest.param([], True, id="the very first"),
        pytest.param([update(1), update(2)], True, id="nothing since"),
        pytest.param([update(1), update(2, attempt="abc")], False, id="it ended well"),
        pytest.param([update(1), update(2, result="failed", attempt="abc")], False, id="it ended badly"),
        pytest.param([update(1), update(2, result="in-progress", attempt="abc")], True, id="a service sees it run"),
        pytest.param([update(1), update(3, kind="refresh")], True, id="a refresh settles nothing"),
        pytest.param([update(1), update(3)], False, id="an update without a record came later"),
        pytest.param([update(1), update(3, kind="destroy")], False, id="taken down since"),
        pytest.param([update(1), update(3, result="in-progress")], True, id="one that runs settles nothing yet"),
    ],
)
def test_unfinished(story: list[Update], open_: bool) -> None:
    assert (unfinished(TRY, story) is not None) == open_


def test_no_mark_no_attempt() -> None:
    assert unfinished(None, [update(1)]) is None


def test_a_tag_gives_it_back_and_fits_what_a_service_allows() -> None:
    assert decode(encode(TRY)) == TRY
    assert len(encode(TRY)) <= 256


@pytest.mark.parametrize("text", [None, "", "something else", "[]"])
def test_what_is_no_attempt_is_none(text: str | None) -> None:
    assert decode(text) is None
