"""The addresses of one of the clusters that may run beside each other on a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Addresses:
    """What is derived from a slot. The host reaches the node, and through it all Services and pods."""

    slot: int

    @property
    def host(self) -> str:
        """The host's end of the link."""
        return f"10.89.{self.slot}.1"

    @property
    def node(self) -> str:
        return f"10.89.{self.slot}.2"

    @property
    def link(self) -> str:
        """The name of the host's end of the link; an interface's name has at most 15 characters."""
        return f"diphase-n{self.slot}"

    @property
    def pods(self) -> str:
        return f"10.244.{self.slot}.0/24"

    @property
    def services(self) -> str:
        return f"10.96.{self.slot}.0/24"

    @property
    def kubernetes(self) -> str:
        """The address of the Service `kubernetes`: always the first."""
        return f"10.96.{self.slot}.1"

    @property
    def dns(self) -> str:
        return f"10.96.{self.slot}.10"

    @property
    def api(self) -> str:
        return f"https://{self.node}:6443"

    @property
    def registry(self) -> str:
        """Host and port of the registry, as the host and the node both see it."""
        return f"{self.node}:5000"

    @property
    def name(self) -> str:
        """The name of the node, its context in the kubeconfig, and its cgroup."""
        return f"diphase-node-{self.slot}"
