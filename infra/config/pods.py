"""What a pod asks of the cluster: cores, memory, nodes, devices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.config.group import Group

Cpu = Annotated[str, Field(pattern=r"^([1-9]\d*m?|\d+\.\d+)$")]
Memory = Annotated[str, Field(pattern=r"^[1-9]\d*[KMGT]i$")]
BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def cores(quantity: str) -> float:
    """Cores in a quantity such as 500m or 4."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def mib(quantity: str) -> float:
    """MiB in a quantity such as 8Gi."""
    return int(quantity[:-2]) * BYTES[quantity[-2:]] / 2**20


class Toleration(Group):
    """A taint that pods of a role put up with, as Kubernetes has it."""

    key: str | None = Field(None, description="the taint's key; all taints when absent")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="how `value` is compared")
    value: str | None = Field(None, description="the taint's value")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="the taint's effect; any when absent"
    )


class Pod(Group):
    """One role's pods."""

    cpu: Cpu = Field(description="cores that are kept for a pod")
    cpu_limit: Cpu | None = Field(None, description="cores that a pod uses at most; `cpu` when absent")
    memory: Memory = Field(description="memory of a pod, kept for it and its limit")
    node_selector: dict[str, str] = Field({}, description="labels that a node must have")
    tolerations: list[Toleration] = Field([], description="taints that are put up with")


class GatewayPod(Pod):
    """The gateway's pods."""

    cpu: Cpu = Field("500m", description="cores that are kept for a pod")
    cpu_limit: Cpu | None = Field("2", description="cores that a pod uses at most; `cpu` when absent")
    memory: Memory = Field("1Gi", description="memory of a pod, kept for it and its limit")


class ControlPod(Pod):
    """The pods of scheduler or kv."""

    cpu: Cpu = Field("250m", description="cores that are kept for a pod")
    cpu_limit: Cpu | None = Field("1", description="cores that a pod uses at most; `cpu` when absent")
    memory: Memory = Field("512Mi", description="memory of a pod, kept for it and its limit")


class Gpu(Group):
    """The GPUs of a worker's pod, and what they must be; what differs stops the pod with a sentence."""

    resource: str = Field("nvidia.com/gpu", min_length=1, description="the device plugin's resource")
    count: int = Field(0, ge=0, le=16, description="GPUs of one pod")
    product: str | None = Field(None, description="model, such as NVIDIA H100 80GB HBM3; not compared when absent")
    driver: str | None = Field(None, pattern=r"^\d+(\.\d+)*$", description="oldest driver that will do")
    ecc: bool | None = Field(None, description="whether ECC must be on; not compared when absent")


class WorkerPod(Pod):
    """The pods of one phase."""

    cpu: Cpu = Field("4", description="cores that are kept for a pod")
    memory: Memory = Field("8Gi", description="memory of a pod, kept for it and its limit")
    gpu: Gpu = Field(Gpu(), description="GPUs, and what they must be")
    efa: int = Field(0, ge=0, le=32, description="EFA interfaces of one pod")
    hugepages_2mi: Memory | None = Field(None, alias="hugepages2Mi", description="huge pages of 2 MiB, in all")
    shared_memory_mib: int = Field(64, ge=1, description="size of /dev/shm, MiB; counts as memory of the pod")
    runtime_class: str | None = Field(None, min_length=1, description="RuntimeClass, where GPUs need one")
    surge: bool | None = Field(
        None, description="whether a rollout may run more pods than replicas; where absent, only without GPUs"
    )

    @property
    def surges(self) -> bool:
        """Whether a rollout may add pods: not where every GPU is taken, or it would wait for ever."""
        return self.gpu.count == 0 if self.surge is None else self.surge
