"""What a stack's file wants of a region. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from infra.config import StackConfig


@dataclass(frozen=True)
class Node:
    """Nodes of one pool: where they may lie, how they are bought, and how many there are at most."""

    pool: str
    instance_type: str
    zones: tuple[str, ...]
    purchase: str
    most: int


@dataclass(frozen=True)
class Wanted:
    """`backend` is the URL of the stack's state; None where it lies in the checkout."""

    stack: str
    config: StackConfig
    backend: str | None = None

    @property
    def region(self) -> str:
        assert self.config.region.name is not None, "the configuration of an aws stack has region.name"
        return self.config.region.name

    @property
    def account(self) -> str:
        assert self.config.region.account is not None, "the configuration of an aws stack has region.account"
        return self.config.region.account

    @property
    def nodes(self) -> list[Node]:
        """The pools' nodes, those without GPUs first."""
        capacity, every = self.config.capacity, tuple(self.config.network.zones)
        system = Node("system", capacity.system.instance_type, every, "onDemand", capacity.system.max)
        return [system] + [
            Node(name, pool.instance_type, (pool.zone,) if pool.zone else every, pool.purchase, pool.max)
            for name, pool in capacity.gpu_pools.items()
        ]

    @property
    def buckets(self) -> list[str]:
        """Names of the buckets that the stack makes."""
        prefix = self.config.storage.prefix or f"diphase-{self.stack}-{self.account}"
        return [f"{prefix}-{what}" for what in ("weights", "kv", "backups", "access-logs")]
