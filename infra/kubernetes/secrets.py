"""What pods read and nobody else should: certificates and the hashes of API keys. Pure; values may be outputs."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pulumi

from infra.kubernetes.names import MANIFEST, Role
from infra.kubernetes.objects import LOGICAL_NAME
from infra.kubernetes.plan import Plan


def tls_secret(plan: Plan, role: Role, pair: Mapping[str, pulumi.Input[str]], ca: pulumi.Input[str]) -> MANIFEST:
    """A role's certificate. Its name stays: the role reads it again when it changes, without a restart."""
    return _tls(plan, f"{role}-tls", role, {**pair, "ca.crt": ca})


def edge_secret(plan: Plan, pair: Mapping[str, pulumi.Input[str]]) -> MANIFEST:
    """The certificate that clients see, where it is one of the stack's own."""
    return _tls(plan, plan.edge_secret, "gateway", pair)


def keys_secret(plan: Plan, hashes: pulumi.Input[str]) -> MANIFEST:
    """The hashes of API keys; never changed, since its name says which."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        LOGICAL_NAME: "api-keys",
        "metadata": plan.names.metadata("", "gateway") | {"name": plan.keys_secret},
        "type": "Opaque",
        "immutable": True,
        "data": {"api_keys.json": _encoded(hashes)},
    }


def trusted(plan: Plan, name: str, ca: pulumi.Input[str]) -> MANIFEST:
    """The stack's CA for those who connect to it, which is no secret."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": plan.names.metadata(name, "gateway"),
        "data": {"ca.crt": ca},
    }


def _tls(plan: Plan, name: str, role: Role, files: Mapping[str, pulumi.Input[str]]) -> MANIFEST:
    data: dict[str, Any] = {file: _encoded(text) for file, text in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": plan.names.metadata(name, role),
        "type": "kubernetes.io/tls",
        "data": data,
    }


def _encoded(text: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.from_input(text).apply(lambda found: base64.b64encode(found.encode()).decode())
