"""What nodes of a pool carry, whoever makes them: labels and taints, by which pods find their nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from infra.config.aws.capacity import GpuPool, PoolName, SystemPool
from infra.config.aws.defaults import GPU_TAINT, POOL_LABEL

AnyValue = TypeVar("AnyValue")


@dataclass(frozen=True)
class Taint:
    """Keeps away every pod that does not put up with it."""

    key: str
    value: str


def labels(name: PoolName, pool: SystemPool | GpuPool) -> dict[str, str]:
    """Labels of a pool's nodes; that of NVIDIA is what its daemons look for, where no feature discovery runs."""
    return {POOL_LABEL: name, **({f"{GPU_TAINT}.present": "true"} if isinstance(pool, GpuPool) else {})}


def taints(name: PoolName, pool: SystemPool | GpuPool) -> list[Taint]:
    """Taints of a pool's nodes: GPUs are for the workers of their phase."""
    return [Taint(POOL_LABEL, name), Taint(GPU_TAINT, "true")] if isinstance(pool, GpuPool) else []


def in_zone(by_zone: Mapping[str, AnyValue], pool: SystemPool | GpuPool) -> list[AnyValue]:
    """Of what there is for each zone, that of the pool's zone, or all."""
    zone = pool.zone if isinstance(pool, GpuPool) else None
    return [by_zone[zone]] if zone else list(by_zone.values())


def kubernetes_version(pool: SystemPool | GpuPool) -> str:
    """Of the nodes, such as 1.35: the AMI's release begins with it."""
    return pool.ami_release.rpartition(".")[0]
