"""A stack's history through the Pulumi CLI, whatever the backend, and the mark that an update leaves when it begins."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import click

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.releases import attempt
from scripts.releases.attempt import TAG, Attempt
from scripts.releases.record import Record
from scripts.releases.updates import Update, read

# What a secrets provider keeps in the state, and what a stack file calls it.
ENCRYPTION = {
    "passphrase": {"salt": "encryptionsalt"},
    "cloud": {"url": "secretsprovider", "encryptedkey": "encryptedkey"},
}


@dataclass(frozen=True)
class History:
    """`updates`, oldest first; `unfinished` is a later try that runs still or was cut off."""

    updates: list[Update]
    unfinished: Attempt | None = None


def load(engine: Engine, *, secrets: bool = False) -> History:
    """The history of a stack; raises OperationFailed. With `secrets` their values are read, too (never write them)."""
    if not engine.exists():
        return History([])
    # The default is the last ten; 0 is all.
    arguments = ["stack", "history", "--json", "--page-size", "0"]
    updates = read(json.loads(engine.pulumi(*arguments) or "[]"))
    if secrets and any(value.secret for update in updates for value in update.config.values()):
        updates = read(json.loads(engine.pulumi(*arguments, "--show-secrets")))
    tags = json.loads(engine.pulumi("stack", "tag", "ls", "--json") or "{}")
    return History(updates, attempt.unfinished(attempt.decode(tags.get(TAG)), updates))


@dataclass(frozen=True)
class State:
    """What the stack's state says: resources that an update was changing when it was cut off, and how secrets are
    encrypted, as the keys of a stack file that say so (none where a service does it, or there are no resources)."""

    pending: list[str]
    encryption: dict[str, str]


def state(engine: Engine) -> State:
    """The present state of a stack that exists; raises OperationFailed."""
    deployment = json.loads(engine.pulumi("stack", "export")).get("deployment") or {}
    operations = deployment.get("pending_operations") or []
    provider = deployment.get("secrets_providers") or {}
    kept = provider.get("state") or {}
    encryption = {file: kept[key] for key, file in ENCRYPTION.get(str(provider.get("type")), {}).items() if key in kept}
    return State([operation["resource"]["urn"].rpartition("::")[2] for operation in operations], encryption)


def mark(engine: Engine, record: Record) -> Callable[[], None]:
    """To be called when an update has begun: names it as the stack's last attempt."""
    begun = attempt.of(record)

    def tag() -> None:
        try:
            engine.pulumi("stack", "tag", "set", TAG, attempt.encode(begun))
        except OperationFailed as error:
            # Without it only a killed update is harder to see; that is no reason to stop this one.
            click.echo(f"warning: the beginning of this update is not recorded: {error.message}", err=True)

    return tag
