"""The history of a stack as its updates: read from what `pulumi stack history --json` prints, on any backend. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from scripts.releases.record import Record, parse

SUCCEEDED = "succeeded"
# A dirty checkout of which only that is known.
UNNAMED = ("files that were not recorded",)


class Value(msgspec.Struct, frozen=True):
    """A configuration value as an update used it; a secret's is None unless secrets were asked for."""

    value: Any
    secret: bool = False


class Update(msgspec.Struct, frozen=True):
    """One operation of a stack. `commit` is what its code was, wherever it ran from; None where nobody recorded it."""

    number: int
    kind: str
    result: str
    started: datetime
    ended: datetime | None
    title: str
    record: Record
    changes: dict[str, int]
    config: dict[str, Value]

    @property
    def commit(self) -> str | None:
        return self.record.commit

    @property
    def images(self) -> dict[str, str]:
        """Each role's image by its digest; empty for targets without."""
        group = self.config.get("diphase:images", Value({})).value
        digests = group.get("digests") if isinstance(group, dict) else None
        return {role: image for role, image in (digests or {}).items() if image}

    @property
    def deploys(self) -> bool:
        """Whether it was to make the stack what a program says."""
        return self.kind == "update"

    @property
    def worked(self) -> bool:
        return self.deploys and self.result == SUCCEEDED

    def same_release(self, other: Update) -> bool:
        """Whether both are of the same code and configuration."""
        mine, others = self.record, other.record
        return (mine.commit, mine.dirty, self.config) == (others.commit, others.dirty, other.config)


def read(entries: Sequence[Mapping[str, Any]]) -> list[Update]:
    """The updates, oldest first, from the CLI's list, which is newest first.

    Backends without a service of their own number nothing, so there the oldest is 1. They keep every entry as long as
    the stack exists, so that this number stays.
    """
    return [_update(number, entry) for number, entry in enumerate(reversed(entries), start=1)]


def _update(position: int, entry: Mapping[str, Any]) -> Update:
    title, record = parse(entry.get("message", ""))
    environment = entry.get("environment") or {}
    if record is None:
        dirty = environment.get("git.dirty") == "true"
        record = Record(environment.get("git.head") or None, UNNAMED if dirty else ())
    ended = entry.get("endTime")
    return Update(
        number=entry.get("version") or position,
        kind=entry["kind"],
        result=entry.get("result", ""),
        started=_time(entry["startTime"]),
        ended=_time(ended) if ended else None,
        title=title,
        record=record,
        changes={kind: count for kind, count in (entry.get("resourceChanges") or {}).items() if count},
        config=_config(entry.get("config") or {}),
    )


def _config(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Value]:
    return {
        key: Value(value.get("objectValue", value.get("value")), bool(value.get("secret")))
        for key, value in values.items()
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def by_number(updates: Iterable[Update], number: int) -> Update | None:
    return next((update for update in updates if update.number == number), None)
