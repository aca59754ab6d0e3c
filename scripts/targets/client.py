"""What a client of a stack holds, by the stack's outputs: address, key, and the certificates that it trusts."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.faults import OperationFailed
from scripts.verification.gather import Target as Tried


def client(stack: str, project: Path, outputs: Mapping[str, Any], roles: Sequence[tuple[str, str]]) -> Tried:
    """What `diphase verify` tries; files that the outputs name lie in `project`. Raises OperationFailed."""
    gateway = gateway_of(stack, outputs)
    key = _read(project / gateway["apiKeyFile"], "API key", stack).strip()
    tls = None
    if gateway.get("caFile"):
        tls = ssl.create_default_context(cadata=_read(project / gateway["caFile"], "CA certificate", stack))
    return Tried(stack, gateway["url"].rstrip("/"), key, list(roles), tls)


def gateway_of(stack: str, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where clients of a stack come in, as its outputs say. Raises OperationFailed."""
    if "gateway" in outputs:
        found: Mapping[str, Any] = outputs["gateway"]
        return found
    if "region" in outputs:
        raise OperationFailed(
            f"region {outputs['region']['name']} stands, but stack {stack} serves nothing yet: "
            f"`diphase images push --stack {stack}`, then `diphase up --stack {stack}`"
        )
    raise OperationFailed(f"stack {stack} is not up: run `diphase up --stack {stack}`")


def _read(path: Path, what: str, stack: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise OperationFailed(
            f"the {what} in {path} cannot be read ({error.strerror}): run `diphase up --stack {stack}`"
        ) from None
