"""Histories for tests, told as a list: what each update was and how it ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from scripts.releases.record import Record, Rollback
from scripts.releases.updates import Update, Value

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def commit(letter: str) -> str:
    """A commit's name: the letter's hexadecimal code, repeated."""
    return f"{ord(letter):02x}" * 20


def update(
    number: int,
    letter: str | None = "A",
    result: str = "succeeded",
    *,
    kind: str = "update",
    config: object = 1,
    back: tuple[int | None, int] | None = None,
    attempt: str = "",
) -> Update:
    """An update of the commit called `letter`, an hour after the one before."""
    rollback = Rollback(*back) if back else None
    record = Record(commit(letter) if letter else None, rollback=rollback, attempt=attempt)
    started = BEGIN + timedelta(hours=number)
    return Update(
        number, kind, result, started, started, letter or "", record, {"update": 1}, {"diphase:x": Value(config)}
    )
