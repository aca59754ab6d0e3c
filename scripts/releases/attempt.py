"""The last try to update a stack, as a tag of the stack: a try that was killed leaves nothing in the history.

Backends without a service write an operation to the history when it has ended. The tag is set when an update has begun
and names the same attempt as the update's message; a try that no message names has not ended, or was cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from scripts.releases.record import Record
from scripts.releases.updates import Update

TAG = "diphase:attempt"


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """`attempt` is that of the update's record. A service allows a tag 256 characters: no names of files here."""

    attempt: str
    at: datetime
    commit: str | None = None
    dirty: bool = False


def of(record: Record) -> Attempt:
    """An attempt that begins now."""
    return Attempt(record.attempt, datetime.now(UTC).replace(microsecond=0), record.commit, bool(record.dirty))


def encode(attempt: Attempt) -> str:
    return msgspec.json.encode(attempt).decode()


def decode(text: str | None) -> Attempt | None:
    """The attempt in a tag; None where there is none, or it was not written by us."""
    try:
        return msgspec.json.decode(text, type=Attempt) if text else None
    except msgspec.DecodeError:
        return None


def unfinished(attempt: Attempt | None, updates: Sequence[Update]) -> Attempt | None:
    """The attempt if no update of the history is it, and none that came later settles the matter."""
    if attempt is None:
        return None
    for update in updates:
        if update.record.attempt == attempt.attempt and update.result != "in-progress":
            return None
        if update.kind in ("update", "destroy") and update.started > attempt.at and update.result != "in-progress":
            return None
    return attempt
