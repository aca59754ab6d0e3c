"""The token with which pods open the shared store, as a resource: a secret of Pulumi's state."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, Resource

from infra.provider import StackProvider

# ElastiCache takes 16 to 128 characters, and of signs only a few: hexadecimal digits will do ("Authenticating with the
# Valkey and Redis OSS AUTH command").
BYTES = 32


class AuthTokenProvider(StackProvider):
    """Makes a token once."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        token = secrets.token_hex(BYTES)
        return CreateResult(hashlib.sha256(token.encode()).hexdigest()[:10], {**props, "token": token})


class AuthToken(Resource, module="aws", name="AuthToken"):
    """`token` is a secret."""

    token: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=["token"])
        super().__init__(AuthTokenProvider(), name, {"token": None}, pulumi.ResourceOptions.merge(opts, secret))
