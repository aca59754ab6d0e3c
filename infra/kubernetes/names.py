"""What a stack's objects are called and where things are in its pods. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

Role = Literal["gateway", "scheduler", "prefill-worker", "decode-worker", "kv"]
ROLES: tuple[Role, ...] = get_args(Role)
MANIFEST = dict[str, Any]

GATEWAY_PORT, ROLE_PORT, TRANSFER_PORT, PROBE_PORT = 8443, 8000, 8002, 8081
CLIENT_PORT = 443  # of the gateway's Service
MODEL, CACHE = Path("/model"), Path("/cache")
TLS, EDGE_TLS, KEYS = Path("/etc/diphase/tls"), Path("/etc/diphase/edge-tls"), Path("/etc/diphase/keys")
USER = 10001  # of every image
# Every role's certificate carries it, and clients inside the stack ask for it, whatever address they connect to.
INTERNAL_NAME = "diphase.internal"


@dataclass(frozen=True)
class Names:
    """One stack in one namespace."""

    stack: str
    namespace: str

    @classmethod
    def of(cls, stack: str, namespace: str | None) -> Names:
        """The names of a stack; without a namespace it has one of its own."""
        return cls(stack, namespace or "diphase-" + re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-"))

    def selector(self, role: Role) -> dict[str, str]:
        """The labels by which a role's pods are found; they never change."""
        return {
            "app.kubernetes.io/name": "diphase",
            "app.kubernetes.io/component": role,
            "app.kubernetes.io/instance": self.stack,
        }

    def labels(self, role: Role) -> dict[str, str]:
        """The labels of a role's objects."""
        return {**self.selector(role), **COMMON_LABELS}

    def host(self, service: str) -> str:
        """A Service's name, as any pod of the cluster resolves it."""
        return f"{service}.{self.namespace}.svc"

    def metadata(self, name: str, role: Role | None = None, **more: Any) -> dict[str, Any]:
        """The metadata of an object of a role, or of the whole stack."""
        labels = self.labels(role) if role else {"app.kubernetes.io/instance": self.stack, **COMMON_LABELS}
        return {"name": name, "namespace": self.namespace, "labels": labels, **more}


COMMON_LABELS = {
    "app.kubernetes.io/version": metadata.version("diphase"),
    "app.kubernetes.io/managed-by": "pulumi",
    "app.kubernetes.io/part-of": "diphase",
}


def digest(content: Mapping[str, str]) -> str:
    """Stands for what a ConfigMap or Secret holds; part of its name, so that a change rolls the pods that read it."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
