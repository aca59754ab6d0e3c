"""The group of capacity: pools of nodes, each of the instance type that its work asks for, and how they are bought."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.config.aws.network import Zone
from infra.config.group import Group

PoolName = Literal["system", "prefill", "decode", "long-prompt"]
InstanceTypeName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")]
AmiRelease = Annotated[str, Field(pattern=r"^1\.\d{2}\.\d+-20\d{6}$")]
RESERVED = ("reservation", "block")


class Pool(Group):
    """What every pool has."""

    ami_release: AmiRelease = Field(
        "1.35.6-20260818", description="release of EKS's AMI; nodes roll when it is changed, and only then"
    )
    disk_gib: int = Field(200, ge=30, le=16384, description="root volume, GiB")
    disk_throughput: int = Field(250, ge=125, le=1000, description="of the root volume, MiB/s")
    disk_iops: int = Field(3000, ge=3000, le=16000, description="of the root volume")

    def _disk_faults(self) -> Iterator[str]:
        # EBS User Guide, "General Purpose SSD volumes": 0.25 MiB/s for each IOPS.
        if self.disk_throughput > self.disk_iops / 4:
            yield (
                f"diskThroughput ({self.disk_throughput}) needs diskIops of {4 * self.disk_throughput} "
                f"at least, not {self.disk_iops}"
            )


class SystemPool(Pool):
    """Nodes of everything but the workers: gateway, scheduler, kv, controllers."""

    instance_type: InstanceTypeName = Field("m7i.xlarge", description="x86-64, without GPUs")
    min: int = Field(2, ge=2, le=100, description="nodes at least")
    max: int = Field(6, ge=2, le=100, description="nodes at most")

    @model_validator(mode="after")
    def _consistent(self) -> SystemPool:
        faults = list(self._disk_faults())
        if self.min > self.max:
            faults.append(f"min ({self.min}) must not exceed max ({self.max})")
        if faults:
            raise ValueError("; ".join(faults))
        return self


class GpuPool(Pool):
    """Nodes of one phase's workers."""

    instance_type: InstanceTypeName = Field(description="such as p5.48xlarge; `diphase capacity` finds one")
    nodes: int = Field(1, ge=0, le=450, description="to begin with; then the autoscaler decides")
    min: int = Field(0, ge=0, le=450, description="nodes at least")
    max: int = Field(1, ge=1, le=450, description="nodes at most")
    purchase: Literal["onDemand", "reservation", "block", "spot"] = Field(
        "onDemand", description="on demand, a capacity reservation, a capacity block for ML, or spot"
    )
    reservation_id: Annotated[str, Field(pattern=r"^cr-[0-9a-f]{8,17}$")] | None = Field(
        None, description="of the reservation or block"
    )
    zone: Zone | None = Field(None, description="the one zone of its nodes; all of network.zones when absent")
    placement_group: bool = Field(False, description="whether nodes lie close together; not with a reservation")
    provisioner: Literal["nodeGroup", "karpenter"] = Field("nodeGroup", description="who makes its nodes")
    disk_gib: int = Field(500, ge=30, le=16384, description="root volume, GiB")
    disk_throughput: int = Field(1000, ge=125, le=1000, description="of the root volume, MiB/s")
    disk_iops: int = Field(4000, ge=3000, le=16000, description="of the root volume")

    @model_validator(mode="after")
    def _consistent(self) -> GpuPool:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        yield from self._disk_faults()
        if not self.min <= self.nodes <= self.max:
            yield f"nodes ({self.nodes}) must lie between min ({self.min}) and max ({self.max})"
        if self.purchase in RESERVED:
            if self.reservation_id is None:
                yield f"purchase {self.purchase} needs reservationId: `diphase preflight` lists those of the account"
            if self.zone is None:
                yield f"purchase {self.purchase} needs zone: that of the reservation"
            if self.placement_group:
                yield (
                    f"placementGroup and purchase {self.purchase} exclude each other: a reservation decides where its "
                    "instances lie. Leave placementGroup out"
                )
        elif self.reservation_id is not None:
            yield (
                f"reservationId is set but purchase is {self.purchase}, so that the reservation would idle: set "
                "purchase to reservation or block, or leave it out"
            )
        if self.min and self.provisioner == "karpenter":
            yield f"min ({self.min}) needs provisioner nodeGroup: Karpenter makes nodes for pods that wait"
        if self.placement_group and self.zone is None:
            yield "placementGroup needs zone: instances of several zones can't lie close together"
        if self.placement_group and self.provisioner == "karpenter":
            yield "placementGroup needs provisioner nodeGroup: the node classes that Karpenter gets here have none"


class Capacity(Group):
    """Of the aws target. Prefill on FLOPS, decode on bandwidth, everything else on nodes without GPUs."""

    system: SystemPool = Field(SystemPool(), description="nodes without GPUs")
    prefill: GpuPool | None = Field(None, description="nodes of the prefill workers; required")
    decode: GpuPool | None = Field(None, description="nodes of the decode workers; required")
    long_prompt: GpuPool | None = Field(None, description="nodes of prefill workers for long prompts; none when absent")

    @property
    def gpu_pools(self) -> dict[PoolName, GpuPool]:
        """The pools with GPUs that there are, by the name that their nodes carry."""
        pools: dict[PoolName, GpuPool | None] = {
            "prefill": self.prefill,
            "decode": self.decode,
            "long-prompt": self.long_prompt,
        }
        return {name: pool for name, pool in pools.items() if pool is not None}

    @property
    def karpenter(self) -> bool:
        """Whether any pool is Karpenter's."""
        return any(pool.provisioner == "karpenter" for pool in self.gpu_pools.values())
