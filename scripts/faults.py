"""What went wrong in an operation, as sentences for people: Pulumi's diagnostics without its wrapping."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import click

from infra.local.supervisord import LocalError

COLOUR = re.compile(r"<\{%.*?%\}>")
# A dynamic provider's exception arrives as a traceback; ours name their kind at the start of the last part.
OURS = re.compile(rf"(?:^|\n)[\w.]*\b(?:{LocalError.__name__}|Gone|PathError): ")


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


def locked(project: Path, name: str, stack: str) -> str:
    """Who holds the lock of a stack whose state is a file, and what to do about it."""
    folder = project / ".diphase" / "state" / ".pulumi" / "locks" / "organization" / name / stack
    holders = []
    stale = True
    for path in sorted(folder.glob("*.json")):
        lock = json.loads(path.read_text())
        here = lock["hostname"] == socket.gethostname()
        gone = here and not os.path.exists(f"/proc/{lock['pid']}") and os.path.isdir("/proc/self")
        stale = stale and gone
        holders.append(
            f"{lock['username']}@{lock['hostname']}, process {lock['pid']}{', which is gone' if gone else ''}, "
            f"since {lock['timestamp'][:19].replace('T', ' ')}"
        )
    who = "; ".join(holders) or "somebody unknown"
    remedy = f"`diphase cancel --stack {stack}` takes the lock away"
    if not (holders and stale):
        remedy = f"wait until that operation ends; only if it is known to be dead: {remedy}"
    return f"stack {stack} is locked by {who}; {remedy}"
