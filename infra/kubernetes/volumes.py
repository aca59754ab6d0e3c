"""The volumes of a role's pods, and where each is mounted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi

from infra.config import StackConfig
from infra.config.pods import WorkerPod
from infra.kubernetes.names import CACHE, EDGE_TLS, KEYS, MODEL, TLS, Role
from infra.kubernetes.plan import Plan

CLAIM = "model"  # of the claim that the stack makes for a folder of the nodes
CACHE_SIZE, TMP_SIZE = "1Gi", "64Mi"
READABLE = 0o440  # by the pod's group


@dataclass(frozen=True)
class Volume:
    """A volume and its mount."""

    name: str
    path: Path
    source: Mapping[str, Any]
    read_only: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def volume(self) -> dict[str, Any]:
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> dict[str, Any]:
        return {"name": self.name, "mountPath": str(self.path), "readOnly": self.read_only, **self.options}


def volumes(plan: Plan, role: Role) -> Iterator[Volume]:
    """Everything that a role's pods mount; the root file system is read-only."""
    yield _secret("tls", TLS, f"{role}-tls")
    yield Volume("tmp", Path("/tmp"), {"emptyDir": {"sizeLimit": TMP_SIZE}})  # noqa: S108 - the pod's own
    if role == "gateway":
        yield _secret("edge-tls", EDGE_TLS, plan.edge_secret)
        yield _secret("keys", KEYS, plan.keys_secret)
        yield model_volume(plan.config)
    if role in ("prefill-worker", "decode-worker"):
        pod = worker_pod(plan.config, role)
        yield model_volume(plan.config)
        yield Volume("cache", CACHE, {"emptyDir": {"sizeLimit": CACHE_SIZE}})
        shm = {"emptyDir": {"medium": "Memory", "sizeLimit": f"{pod.shared_memory_mib}Mi"}}
        yield Volume("shm", Path("/dev/shm"), shm)  # noqa: S108
        if pod.hugepages_2mi:
            yield Volume("hugepages", Path("/dev/hugepages"), {"emptyDir": {"medium": "HugePages-2Mi"}})


def model_volume(config: StackConfig) -> Volume:
    """The model as the roles see it: only ever read."""
    wanted = config.kubernetes.model_volume
    if wanted.fetch:
        return Volume("model", MODEL, {"emptyDir": {"sizeLimit": wanted.size}}, read_only=True)
    claim = {"persistentVolumeClaim": {"claimName": wanted.claim or CLAIM, "readOnly": True}}
    return Volume("model", MODEL, claim, True, {"subPath": wanted.sub_path} if wanted.sub_path else {})


def worker_pod(config: StackConfig, role: Role) -> WorkerPod:
    """What a phase's pods ask for."""
    return config.kubernetes.prefill if role == "prefill-worker" else config.kubernetes.decode


def _secret(name: str, path: Path, secret: pulumi.Input[str]) -> Volume:
    return Volume(name, path, {"secret": {"secretName": secret, "defaultMode": READABLE}}, read_only=True)
