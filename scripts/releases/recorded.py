"""The configuration that an update recorded: as a stack file to run with, and how it differs from another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from scripts.engine import PROJECT, Engine
from scripts.faults import OperationFailed
from scripts.releases.updates import Value

# What the CLI prints in place of a value that another secrets provider has encrypted.
UNREADABLE = "ERROR_UNABLE_TO_DECRYPT"
HIDDEN = "[secret]"
ABSENT = "(absent)"


def write(engine: Engine, number: int, config: Mapping[str, Value], encryption: Mapping[str, str], path: Path) -> None:
    """Write a stack file with an update's configuration, secrets encrypted; raises OperationFailed.

    `encryption` are the keys of a stack file that say how, as the state has it. The configuration must have been read
    with its secrets.
    """
    lost = [key for key, value in config.items() if value.secret and value.value in (None, UNREADABLE)]
    if lost:
        raise OperationFailed(
            f"{', '.join(lost)} of update {number} cannot be decrypted: the secrets provider was changed since, "
            "or its key is not at hand (PULUMI_CONFIG_PASSPHRASE, or access to the KMS key)"
        )
    document: dict[str, Any] = dict(encryption)
    document["config"] = {key: value.value for key, value in config.items() if not value.secret}
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    for key, value in config.items():
        if value.secret:
            plain = value.value if isinstance(value.value, str) else json.dumps(value.value)
            # One line end is taken off what is read.
            engine.pulumi("config", "set", "--secret", "--config-file", str(path), key, text=f"{plain}\n")


def of_file(text: str | None) -> dict[str, Value]:
    """The configuration in a stack file's text, secrets without their values; empty where there is none."""
    document = yaml.safe_load(text) if text else None
    config = document.get("config") if isinstance(document, dict) else None
    return {_key(str(key)): _value(value) for key, value in (config or {}).items()}


def differences(before: Mapping[str, Value], after: Mapping[str, Value]) -> list[str]:
    """A line for each key that differs: `diphase:decode.replicas: 2 → 1`. Values of secrets are not shown.

    A secret whose value is unknown on either side counts as equal.
    """
    mine, others = dict(_flat(before)), dict(_flat(after))
    lines = []
    for key in sorted(mine.keys() | others.keys()):
        old, new = mine.get(key), others.get(key)
        if old is not None and new is not None and old.secret and new.secret:
            if None not in (old.value, new.value) and old.value != new.value:
                lines.append(f"{key}: {HIDDEN} → another {HIDDEN}")
        elif old != new:
            lines.append(f"{key}: {_shown(old)} → {_shown(new)}")
    return lines


def _flat(config: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    for key, value in config.items():
        yield from [(key, value)] if value.secret else _leaves(key, value.value)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Value]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    else:
        # A scalar is a text in the history and itself in a file, where 7 may be written 7.0.
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        yield key, Value(value if isinstance(value, str | dict | list) else json.dumps(value))


def _shown(value: Value | None) -> str:
    if value is None:
        return ABSENT
    return HIDDEN if value.secret else value.value if isinstance(value.value, str) else json.dumps(value.value)


def _key(key: str) -> str:
    return key if ":" in key else f"{PROJECT}:{key}"


def _value(value: Any) -> Value:
    return Value(None, True) if _has_secret(value) else Value(value)


def _has_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) == {"secure"} or any(map(_has_secret, value.values()))
    return isinstance(value, list) and any(map(_has_secret, value))
