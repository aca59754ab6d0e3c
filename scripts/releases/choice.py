"""Which update a rollback goes to. Pure.

Good is an update that succeeded and was not itself rolled back from. The default is the last good one that is something
else than what the stack runs; where the last update failed or was cut off, that is the last good one.
"""

from __future__ import annotations

from collections.abc import Sequence

from scripts.releases.attempt import Attempt
from scripts.releases.updates import Update, by_number

OFFERED = 5
SHORTEST = 4  # digits of an abbreviated commit, as for git


class NoChoice(Exception):
    """There is nothing to roll back to without being told; the message says why and what to do."""


def current(updates: Sequence[Update]) -> Update | None:
    """The update that made the stack what it is, or tried to; None where there was none."""
    return next((update for update in reversed(updates) if update.deploys or update.kind == "destroy"), None)


def bad(updates: Sequence[Update]) -> set[int]:
    """The updates that somebody rolled back from.

    Those right before of the same release are as bad: somebody tried it again, or changed nothing.
    """
    found: set[int] = set()
    for update in updates:
        left = update.record.rollback and update.record.rollback.origin
        origin = by_number(updates, left) if left else None
        if origin is not None:
            found |= {origin.number} | (_run_of(updates, origin) if origin.worked else set())
    return found


def good(updates: Sequence[Update]) -> list[Update]:
    """What may be gone back to by default, newest first."""
    refused = bad(updates)
    return [update for update in reversed(updates) if update.worked and update.number not in refused]


def default(updates: Sequence[Update], unfinished: Attempt | None) -> Update:
    """The update to go back to; raises NoChoice."""
    now = current(updates)
    if now is None:
        raise NoChoice("it has never been up, so there is nothing to go back to" + _tried(unfinished))
    candidates = good(updates)
    if unfinished is None and now.kind == "destroy" and now.result == "succeeded":
        raise NoChoice(f"it was taken down (update {now.number}); `--to` brings an update back{_offer(candidates)}")
    if unfinished is None and now.worked:
        alike = _run_of(updates, now)
        candidates = [update for update in candidates if update.number not in alike]
        before = now.record.rollback
        if before is not None:
            raise NoChoice(
                f"it is rolled back already: update {now.number} brought back what update {before.target} was. "
                f"To go elsewhere, say so with `--to`{_offer(candidates)}"
            )
    if not candidates:
        raise NoChoice("no update before this one succeeded, so there is nothing to go back to")
    return candidates[0]


def named(updates: Sequence[Update], name: str, commit: str | None) -> Update:
    """The update of a number, or the last that succeeded with a commit; raises NoChoice.

    `commit` is what the name stands for in this clone, if anything.
    """
    update = by_number(updates, int(name)) if name.isascii() and name.isdecimal() else None
    if update is None:
        prefix = (commit or name).lower()
        found = [u for u in reversed(updates) if u.deploys and u.commit and u.commit.startswith(prefix)]
        if len(prefix) < SHORTEST:  # a mistyped number is not the beginning of a commit
            found = []
        update = next((u for u in found if u.worked), found[0] if found else None)
    if update is None:
        raise NoChoice(f"it has no update {name}, and no update of a commit {name}{_offer(good(updates))}")
    if not update.deploys:
        raise NoChoice(f"update {update.number} is a {update.kind}, which has no release{_offer(good(updates))}")
    if not update.worked:
        raise NoChoice(f"update {update.number} is no good: its result is {update.result}{_offer(good(updates))}")
    return update


def _run_of(updates: Sequence[Update], last: Update) -> set[int]:
    """The numbers of `last` and of the successful updates of the same release right before it."""
    found = set()
    for update in reversed(updates):
        if update.number > last.number or not update.deploys:
            continue
        if not (update.worked and update.same_release(last)):
            break
        found.add(update.number)
    return found


def _offer(candidates: Sequence[Update]) -> str:
    some = ", ".join(f"{u.number} ({(u.commit or 'no commit')[:12]})" for u in candidates[:OFFERED])
    return f". There are: {some}; `diphase history` shows all" if some else ". There is none that was good"


def _tried(unfinished: Attempt | None) -> str:
    return ": its first update has not ended, or was cut off" if unfinished else ""
