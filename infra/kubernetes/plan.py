"""One stack as it is to be: its configuration, its names, and what its pods read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi

from infra.config import StackConfig
from infra.kubernetes.names import MANIFEST, Names, Role, digest
from infra.kubernetes.settings import Settings
from infra.process import environment_of

EDGE_SECRET = "edge-tls"  # noqa: S105 - a name


@dataclass(frozen=True)
class Environment:
    """A role's environment: what all of its pods share, by the name of a ConfigMap, and what each has of its own."""

    config_map: str
    shared: dict[str, str]
    own: list[dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """What the manifests of a stack are made from."""

    config: StackConfig
    names: Names
    keys_secret: pulumi.Input[str]

    @property
    def edge_secret(self) -> str:
        """The Secret with the certificate that clients see."""
        return self.config.kubernetes.entry.tls_secret or EDGE_SECRET

    def environment(self, role: Role) -> Environment:
        """A role's environment."""
        found = environment_of(Settings(self.config, self.names).of(role))
        own = {name: value for name, value in found.items() if "$(" in value}
        shared = {name: value for name, value in found.items() if name not in own}
        fields = {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
        return Environment(
            f"{role}-{digest(shared)}",
            shared,
            # A variable may be used by those that come after it.
            [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
            + [{"name": name, "value": value} for name, value in own.items()],
        )

    def config_map(self, role: Role) -> MANIFEST:
        """A role's shared environment; never changed, since its content is in its name."""
        environment = self.environment(role)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.names.metadata(environment.config_map, role),
            "immutable": True,
            "data": environment.shared,
        }
