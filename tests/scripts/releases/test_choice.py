"""Which update a rollback goes to, by the story of the stack."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scripts.releases import choice
from scripts.releases.attempt import Attempt
from scripts.releases.choice import NoChoice
from scripts.releases.updates import Update
from tests.scripts.releases.story import BEGIN, commit, update

CUT_OFF = Attempt("cut", BEGIN + timedelta(hours=99), commit("Z"))


@pytest.mark.parametrize(
    ("story", "cut_off", "goes_to"),
    [
        pytest.param([update(1, "A"), update(2, "B")], False, 1, id="two that worked"),
        pytest.param([update(1, "A"), update(2, "B", "failed")], False, 1, id="the last failed"),
        pytest.param([update(1, "A"), update(2, "B", "failed"), update(3, "C", "failed")], False, 1, id="two failed"),
        pytest.param([update(1, "A"), update(2, "B")], True, 2, id="a later one was cut off"),
        pytest.param([update(1, "A"), update(2, "B"), update(3, "B")], False, 1, id="the bad one was tried again"),
        pytest.param([update(1, "A"), update(2, "A", config=2)], False, 1, id="only the configuration changed"),
        pytest.param([update(1, "A"), update(2, "A", "failed")], False, 1, id="the same failed the second time"),
        pytest.param(
            [update(1, "A"), update(2, "B"), update(3, "A", back=(2, 1)), update(4, "C")],
            False,
            3,
            id="after a rollback",
        ),
        pytest.param(
            [update(1, "A"), update(2, "B"), update(3, "A", "failed", back=(2, 1))], False, 1, id="a rollback failed"
        ),
        pytest.param(
            [update(1, "A"), update(2, "B"), update(3, "B"), update(4, "A", back=(3, 1)), update(5, "C", "failed")],
            False,
            4,
            id="the last failed after a rollback",
        ),
        pytest.param(
            [update(1, "A"), update(2, "B"), update(3, "A", back=(2, 1)), update(4, "B"), update(5, "C")],
            False,
            4,
            id="deployed again on purpose after it was rolled back from",
        ),
        pytest.param(
            [update(1, "A"), update(2, "B"), update(3, None, kind="refresh"), update(4, "C", "in-progress")],
            False,
            2,
            id="a refresh between, and one that a service knows to be cut off",
        ),
        pytest.param(
            [update(1, "A"), update(2, None, kind="destroy"), update(3, "B", "failed")], False, 1, id="up again"
        ),
    ],
)
def test_the_default(story: list[Update], cut_off: bool, goes_to: int) -> None:
    assert choice.default(story, CUT_OFF if cut_off else None).number == goes_to


@pytest.mark.parametrize(
    ("story", "cut_off", "says"),
    [
        pytest.param([], False, "it has never been up", id="never up"),
        pytest.param([], True, "never been up.*its first update has not ended", id="the first was cut off"),
        pytest.param([update(1, "A", "failed")], False, "no update before this one succeeded", id="the first failed"),
        pytest.param([update(1, "A")], False, "no update before this one succeeded", id="only one"),
        pytest.param([update(1, "A"), update(2, "A")], False, "no update before this one", id="one release only"),
        pytest.param(
            [update(1, "A"), update(2, "B"), update(3, "C"), update(4, "B", back=(3, 2))],
            False,
            r"rolled back already: update 4 brought back what update 2 was.*`--to`.*1 \(4141",
            id="rolled back already",
        ),
        pytest.param(
            [update(1, "A"), update(2, None, kind="destroy")], False, r"taken down.*There are: 1 \(", id="down"
        ),
    ],
)
def test_where_there_is_no_default_it_says_why(story: list[Update], cut_off: bool, says: str) -> None:
    with pytest.raises(NoChoice, match=says):
        choice.default(story, CUT_OFF if cut_off else None)


STORY = [
    update(1, "A"),
    update(2, "B"),
    update(3, None, kind="refresh"),
    update(4, "A", back=(2, 1)),
    update(5, "C", "failed"),
]


@pytest.mark.parametrize(
    ("name", "stands_for", "goes_to"),
    [
        ("1", None, 1),
        ("2", None, 2),  # rolled back from, and named all the same
        (commit("A"), commit("A"), 4),  # the last one of a commit
        (commit("B")[:7], commit("B"), 2),
        (commit("B")[:7].upper(), None, 2),  # not in this clone, known from the history
        ("v1.0", commit("B"), 2),  # a tag
    ],
)
def test_named(name: str, stands_for: str | None, goes_to: int) -> None:
    assert choice.named(STORY, name, stands_for).number == goes_to


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("9", "no update 9.*There are: 4 "),
        ("3", "update 3 is a refresh"),
        ("5", "update 5 is no good: its result is failed"),
        (commit("C"), "update 5 is no good"),
        ("main", "no update of a commit main"),
        (commit("B")[:3], "no update of a commit"),  # no more than any mistyped number
        ("", "no update of a commit"),
        ("²", "no update ²"),
    ],
)
def test_what_cannot_be_named_is_said_with_what_can(name: str, says: str) -> None:
    with pytest.raises(NoChoice, match=says):
        choice.named(STORY, name, None)


def test_bad_is_what_was_rolled_back_from_with_what_was_the_same_right_before() -> None:
    story = [update(1, "B"), update(2, "A"), update(3, "B"), update(4, "B"), update(5, "A", back=(4, 2))]
    assert choice.bad(story) == {3, 4}
    assert [one.number for one in choice.good(story)] == [5, 2, 1]


def test_rolling_back_from_a_failed_update_does_not_mark_the_good_one_of_the_same_release() -> None:
    story = [update(1, "A"), update(2, "A", "failed"), update(3, "A", back=(2, 1))]
    assert 1 in {one.number for one in choice.good(story)}
