"""The key of the stack's gateway as a resource, kept in Pulumi's state as a secret: whoever may deploy may also ask."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, Resource

from infra.provider import StackProvider


class ApiKeyProvider(StackProvider):
    """Makes a key once."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        key = f"sk-diphase-{secrets.token_urlsafe(24)}"
        sha256 = hashlib.sha256(key.encode()).hexdigest()
        return CreateResult(sha256[:10], {**props, "key": key, "sha256": sha256})


class ApiKey(Resource, module="kubernetes", name="ApiKey"):
    """`key` is for clients, `sha256` for the gateway."""

    key: pulumi.Output[str]
    sha256: pulumi.Output[str]

    def __init__(self, name: str) -> None:
        options = pulumi.ResourceOptions(additional_secret_outputs=["key"])
        super().__init__(ApiKeyProvider(), name, {"key": None, "sha256": None}, options)

    @property
    def hashes(self) -> pulumi.Output[str]:
        """What the gateway reads."""
        return self.sha256.apply(lambda found: json.dumps([{"name": "default", "sha256": found}]))
