"""The groups of the kubernetes target."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.config.entry import Entry
from infra.config.group import DnsName, Group, LogLevel
from infra.config.pods import ControlPod, GatewayPod, WorkerPod

Reference = Annotated[str, Field(pattern=r"^[\w.:/-]+@sha256:[0-9a-f]{64}$")]
Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/\d{1,3}$")]


class Digests(Group):
    """Each role's image by its digest: what runs is what was built."""

    gateway: Reference | None = Field(None, description="REGISTRY/gateway@sha256:…")
    scheduler: Reference | None = Field(None, description="REGISTRY/scheduler@sha256:…")
    worker: Reference | None = Field(None, description="REGISTRY/worker@sha256:…")
    kv: Reference | None = Field(None, description="REGISTRY/kv@sha256:…")


class Images(Group):
    """The images that pods run."""

    registry: str | None = Field(None, min_length=1, description="where `diphase images push` puts them")
    digests: Digests = Field(Digests(), description="what is deployed")
    pull_secrets: list[DnsName] = Field([], description="Secrets in the namespace that open the registry")


class ModelVolume(Group):
    """Where /model comes from: a claim, a folder of the nodes, or an init container. One of the three."""

    claim: DnsName | None = Field(None, description="a PersistentVolumeClaim in the namespace that many pods may read")
    host_path: str | None = Field(None, pattern=r"^/", description="a folder that every node has at this path")
    fetch: bool = Field(False, description="each pod fetches model.source at its start, which takes its time")
    sub_path: str | None = Field(None, pattern=r"^[^/]", description="folder inside the claim")
    size: str = Field("100Gi", pattern=r"^[1-9]\d*[MGT]i$", description="of the folder, or room for what is fetched")

    @model_validator(mode="after")
    def _one(self) -> ModelVolume:
        if sum([self.claim is not None, self.host_path is not None, self.fetch]) > 1:
            raise ValueError("claim, hostPath and fetch exclude each other: set one")
        return self


class Priority(Group):
    """Values of the stack's PriorityClasses; without one, pods have the cluster's default."""

    front: int | None = Field(None, ge=-(2**31), le=10**9, description="gateway, scheduler and kv")
    workers: int | None = Field(None, ge=-(2**31), le=10**9, description="prefill and decode workers")


class Certificates(Group):
    """The stack's own CA. `up` renews what has less than a third of its life left."""

    ca_days: int = Field(1095, ge=2, description="life of a CA")
    role_days: int = Field(90, ge=1, description="life of the certificates that it signs")
    rotation: int = Field(0, ge=0, description="raise it for a new CA now; the one before stays trusted until unused")


class Kubernetes(Group):
    """What only the kubernetes target has."""

    kubeconfig: str = Field(
        "~/.kube/config", min_length=1, description="file with the cluster's address and credentials"
    )
    context: str | None = Field(None, min_length=1, description="context in that file; required")
    cluster_identifier: str | None = Field(
        None,
        min_length=1,
        description="changed when it is another cluster, where all is made anew; `context` when absent",
    )
    namespace: DnsName | None = Field(None, max_length=50, description="`diphase-` and the stack's name when absent")
    entry: Entry = Field(Entry(), description="where clients come in")
    model_volume: ModelVolume = Field(ModelVolume(), description="where the model comes from")
    gateway: GatewayPod = Field(GatewayPod(), description="pods of the gateway")
    scheduler: ControlPod = Field(ControlPod(), description="pods of the scheduler")
    kv: ControlPod = Field(ControlPod(), description="the pod of kv")
    prefill: WorkerPod = Field(WorkerPod(), description="pods of the prefill workers")
    decode: WorkerPod = Field(WorkerPod(), description="pods of the decode workers")
    priority: Priority = Field(Priority(), description="who gives way when nodes are full")
    certificates: Certificates = Field(Certificates(), description="TLS between roles")
    autoscaled: list[Literal["gateway", "scheduler", "prefill", "decode"]] = Field(
        [], description="roles whose number of pods something else decides; `up` leaves it alone"
    )
    drain_seconds: float = Field(60.0, ge=0, le=3600, description="how long a pod that is to end may finish requests")
    pre_stop_seconds: int = Field(5, ge=0, le=300, description="before that, while clients and balancers look away")
    ready_seconds: int = Field(600, ge=10, description="how long `up` waits until a role's pods are ready")
    log_level: LogLevel = Field("info", description="what the roles log")
    monitoring_namespace: DnsName | None = Field(None, description="whose pods may read /metrics")
    api_server_cidrs: list[Cidr] = Field(
        [], description="from where the API server reaches pods, for `verify`; not needed where it runs on the nodes"
    )
