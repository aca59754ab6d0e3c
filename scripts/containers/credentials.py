"""What `docker login` keeps: the credentials for a registry, in its file or behind a credential helper."""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.faults import OperationFailed

HELPER_SECONDS = 30


def find(host: str, environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """User and password for a registry's host; None where docker has none. Raises OperationFailed on a bad file."""
    path = Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, json.JSONDecodeError) as error:
        raise OperationFailed(f"{path} cannot be read: {error}") from None
    helper = config.get("credHelpers", {}).get(host) or config.get("credsStore")
    if helper:
        return _from_helper(helper, host)
    auths: dict[str, Any] = config.get("auths", {})
    entry: dict[str, Any] = next(
        (auths[key] for key in (host, f"https://{host}", f"https://{host}/v2/") if key in auths), {}
    )
    if not entry.get("auth"):
        return None
    try:
        user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise OperationFailed(f"{path}: the entry of {host} is broken; run `docker login {host}` again") from None
    return user, password


def _from_helper(helper: str, host: str) -> tuple[str, str] | None:
    command = [f"docker-credential-{helper}", "get"]
    try:
        done = subprocess.run(command, input=host, capture_output=True, text=True, check=False, timeout=HELPER_SECONDS)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise OperationFailed(f"docker's credential helper {command[0]} failed: {error}") from None
    if done.returncode != 0:
        return None  # a helper's way to say that it has none
    found = json.loads(done.stdout)
    return found["Username"], found["Secret"]
