"""What the aws target knows by itself: on which nodes pods run, and from where the API server reaches them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from infra.config.aws.subnets import subnets
from infra.config.kubernetes import Kubernetes
from infra.config.pods import Pod, Toleration

if TYPE_CHECKING:
    from infra.config.stack import StackConfig

POOL_LABEL = "diphase.io/pool"
GPU_TAINT = "nvidia.com/gpu"
AnyPod = TypeVar("AnyPod", bound=Pod)


def filled(config: StackConfig) -> StackConfig:
    """The configuration with what a stack's file left out; what it says stays."""
    kubernetes = config.kubernetes
    updates: dict[str, object] = {
        "gateway": _on(kubernetes.gateway, "system"),
        "scheduler": _on(kubernetes.scheduler, "system"),
        "kv": _on(kubernetes.kv, "system"),
        "prefill": _on(kubernetes.prefill, "prefill"),
        "decode": _on(kubernetes.decode, "decode"),
    }
    if not kubernetes.api_server_cidrs and config.network.zones:
        # Its interfaces lie in the cluster's subnets (EKS User Guide, "VPC and subnet requirements").
        updates["api_server_cidrs"] = [subnet.cidr for subnet in subnets(config.network) if subnet.kind == "cluster"]
    volume = kubernetes.model_volume
    if not (volume.claim or volume.host_path or volume.fetch):
        updates["model_volume"] = volume.model_copy(update={"fetch": True})
    changed: Kubernetes = kubernetes.model_copy(update=updates)
    return config.model_copy(update={"kubernetes": changed})


def _on(pod: AnyPod, pool: str) -> AnyPod:
    """A pod on the nodes of a pool."""
    selector = pod.node_selector or {POOL_LABEL: pool}
    tolerations = pod.tolerations
    if pool != "system" and not tolerations:
        exists = Toleration(key=GPU_TAINT, operator="Exists", value=None, effect="NoSchedule")
        tolerations = [Toleration(key=POOL_LABEL, operator="Equal", value=pool, effect="NoSchedule"), exists]
    return pod.model_copy(update={"node_selector": selector, "tolerations": tolerations})
