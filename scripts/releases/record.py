"""What an update is made of besides its configuration, as the last line of its message in the stack's history.

Pulumi records the configuration (which names images by their digests), the result, and the state of the checkout that
it was called in. It does not say which files were dirty, or that the code came from somewhere else, as it does in a
rollback. This is the one place for what is missing: `diphase: {"commit": …, "dirty": […], "version": …, "attempt": …}`.
"""

from __future__ import annotations

import secrets

import msgspec

MARK = "diphase: "
# A message travels as an argument and is shown in one piece, so of many changed files only the first are named.
MAX_DIRTY = 20


class Rollback(msgspec.Struct, frozen=True):
    """From which update to which; `origin` is None where the update that is left is in no history."""

    origin: int | None
    target: int


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """`commit` is None outside of a git checkout; `dirty` names files whose state differs from it."""

    commit: str | None = None
    dirty: tuple[str, ...] = ()
    version: str = ""
    rollback: Rollback | None = None
    attempt: str = ""

    @property
    def dirty_code(self) -> tuple[str, ...]:
        """The dirty files but for stack files: the configuration is recorded whole anyway."""
        return tuple(path for path in self.dirty if "stacks/Pulumi." not in path)


def new_attempt() -> str:
    """A name for one try to update a stack."""
    return secrets.token_hex(6)


def compose(title: str, record: Record) -> str:
    """The message of an update."""
    if len(record.dirty) > MAX_DIRTY:
        more = f"and {len(record.dirty) - MAX_DIRTY + 1} more"
        record = msgspec.structs.replace(record, dirty=(*record.dirty[: MAX_DIRTY - 1], more))
    line = MARK + msgspec.json.encode(record).decode()
    return f"{title.strip()}\n\n{line}" if title.strip() else line


def parse(message: str) -> tuple[str, Record | None]:
    """Title and record of a message; no record where the update was not made by `diphase`, or by one to come."""
    title, _, line = message.strip().rpartition("\n")
    if not line.startswith(MARK):
        return message.strip(), None
    try:
        return title.strip(), msgspec.json.decode(line.removeprefix(MARK), type=Record)
    except msgspec.DecodeError:
        return title.strip(), None
