"""What went wrong in an operation, as sentences for people: Pulumi's diagnostics without its wrapping."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from infra.local.supervisord import LocalError

COLOUR = re.compile(r"<\{%.*?%\}>")
# A dynamic provider's exception arrives as a traceback; ours name their kind at the start of the last part.
OURS = re.compile(rf"(?:^|\n)[\w.]*\b(?:{LocalError.__name__}|Gone|PathError|RolloutError): ")

# How the CLI names who holds a lock in a bucket or a folder.
HOLDER = re.compile(r"created by (\S+)@(\S+) \(pid (\d+)\) at (\S+)")
# What the engine adds to the fault itself.
NOISE = re.compile(r"(update|preview|refresh|destroy) failed|Resource monitor has terminated, shutting down")

# What Pulumi's Kubernetes provider says around the fault itself, and how it lists several.
AWAITED = re.compile(
    r'(?:resource|update of resource|creation of resource|the Kubernetes API server reported that) "urn:\S+::(\S+)" '
    r"(?:was successfully created, but the Kubernetes API server reported that it )?failed to fully initialize or "
    r"become live: "
)
LISTED = re.compile(r"(?:\d+ errors? occurred:)?\s*\n\s*\* ")


class OperationFailed(click.ClickException):
    """An operation ended badly; the message has a sentence for each fault."""

    def show(self, file: object = None) -> None:
        click.echo(f"error: {self.format_message()}", err=True)


def sentences(messages: list[str]) -> str:
    """The faults among an operation's diagnostics, each once."""
    said = [text for message in messages if (text := sentence(message)) and not NOISE.fullmatch(text)]
    return "\n".join(dict.fromkeys(said))


def sentence(message: str) -> str:
    """A diagnostic without colours, wrapping and traceback."""
    text = COLOUR.sub("", message).strip()
    parts = OURS.split(text)
    if len(parts) > 1:
        return parts[-1].strip()
    if "Traceback (most recent call last)" in text:
        return text.splitlines()[-1].strip()
    text = AWAITED.sub(r"\1: ", "; ".join(part for part in LISTED.split(text) if part))
    return re.sub(r"^(error: )?(Program failed with an unhandled exception: )?", "", text)


class Holder(NamedTuple):
    """Who holds a stack's lock."""

    user: str
    host: str
    pid: int
    since: str

    @classmethod
    def of(cls, lock: Mapping[str, Any]) -> Holder:
        """Who wrote a lock."""
        return cls(lock["username"], lock["hostname"], lock["pid"], lock["timestamp"])

    @property
    def gone(self) -> bool:
        """Whether it is known to be dead: it ran on this machine, and does not any more."""
        if self.host != socket.gethostname() or not os.path.isdir("/proc/self"):
            return False
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        # One that was killed stays as a zombie until its parent, perhaps an idle init, has asked how it ended.
        return stat.rpartition(") ")[2][:1] in ("Z", "X")

    def __str__(self) -> str:
        gone = ", which is gone" if self.gone else ""
        return f"{self.user}@{self.host}, process {self.pid}{gone}, since {self.since[:19].replace('T', ' ')}"


def holders_in(project: Path, name: str, stack: str) -> list[Holder]:
    """Who holds the lock of a stack whose state is in the checkout; empty where nobody does."""
    folder = project / ".diphase" / "state" / ".pulumi" / "locks" / "organization" / name / stack
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            lock = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):  # it is being made or taken away
            continue
        found.append(Holder.of(lock))
    return found


def holders_named(said: str) -> list[Holder]:
    """Who holds a lock by what the CLI said of it; empty where it named nobody."""
    return [Holder(user, host, int(pid), since) for user, host, pid, since in HOLDER.findall(said)]


def locked(holders: Sequence[Holder], stack: str) -> str:
    """That a stack is locked, by whom, and what to do about it."""
    who = "; ".join(map(str, holders)) or "somebody unknown"
    remedy = f"`diphase cancel --stack {stack}` takes the lock away"
    if not (holders and all(holder.gone for holder in holders)):
        remedy = f"wait until that operation ends; only if it is known to be dead: {remedy}"
    return f"stack {stack} is locked by {who}; {remedy}"
