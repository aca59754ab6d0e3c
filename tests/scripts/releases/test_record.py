"""What an update says of itself survives its message, whatever else stands in it."""

from __future__ import annotations

import pytest

from scripts.releases.record import MARK, MAX_DIRTY, Record, Rollback, compose, parse

WHOLE = Record("a" * 40, ("services/x.py", "neue Datei.txt"), "0.1.0", Rollback(7, 5), "c0ffee")


@pytest.mark.parametrize("title", ["", "A title", "A title\n\nwith more", "diphase: not a record"])
@pytest.mark.parametrize("record", [WHOLE, Record(), Record(rollback=Rollback(None, 3))])
def test_a_message_gives_back_what_it_was_composed_of(title: str, record: Record) -> None:
    assert parse(compose(title, record)) == (title, record)


@pytest.mark.parametrize("message", ["", "A commit's title", "Fix\n\nBody", f"x\n\n{MARK}{{broken", f"{MARK}[]"])
def test_other_messages_hold_no_record(message: str) -> None:
    assert parse(message)[1] is None


def test_fields_of_a_later_version_do_no_harm() -> None:
    assert parse(f'Title\n\n{MARK}{{"commit":"abc","tomorrow":1}}') == ("Title", Record("abc"))


def test_of_many_changed_files_the_first_are_named_and_the_others_counted() -> None:
    files = tuple(f"f{i}" for i in range(100))
    _, record = parse(compose("", Record("a", files)))
    assert record is not None
    assert record.dirty[:-1] == files[: MAX_DIRTY - 1]
    assert record.dirty[-1] == f"and {100 - (MAX_DIRTY - 1)} more"
