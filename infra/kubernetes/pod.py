"""A role's pod: its container, its probes, how it ends, and what it may not do. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from infra.config import StackConfig
from infra.config.pods import Pod, WorkerPod, mib
from infra.kubernetes import init_containers
from infra.kubernetes.names import GATEWAY_PORT, MANIFEST, PROBE_PORT, ROLE_PORT, TRANSFER_PORT, USER, Names, Role
from infra.kubernetes.plan import Plan
from infra.kubernetes.volumes import Volume, volumes, worker_pod

EFA = "vpc.amazonaws.com/efa"
# After the drain a role cuts what is left and gives it back; then the kernel may have the rest.
END_SECONDS = 10
# Kubelet rotates a container's log: five files of 10 MiB, unless a node is set up for more.
LOG_MIB = 256
REVISION_LABEL = "diphase.dev/revision"


def template(plan: Plan, role: Role) -> MANIFEST:
    """The template of a role's pods."""
    config, names, pod = plan.config, plan.names, pod_of(plan.config, role)
    mounted = list(volumes(plan, role))
    environment = plan.environment(role)
    container = {
        "name": role,
        "image": image(config, role),
        "imagePullPolicy": "IfNotPresent",
        "env": environment.own,
        "envFrom": [{"configMapRef": {"name": environment.config_map}}],
        "ports": [{"name": name, "containerPort": port} for name, port in ports(role).items()],
        "resources": resources(pod, disk(mounted)),
        "volumeMounts": [volume.mount for volume in mounted],
        "securityContext": CONFINED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **PROBES,
        **_pre_stop(config.kubernetes.pre_stop_seconds),
    }
    labels = {**names.labels(role), REVISION_LABEL: config.model.revision}
    spec = {
        "serviceAccountName": role,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": grace_seconds(config),
        "initContainers": init_containers.of(config, role, CONFINED, container["resources"]),
        "containers": [container],
        "volumes": [volume.volume for volume in mounted],
        "nodeSelector": pod.node_selector,
        "tolerations": [taint.model_dump(by_alias=True, exclude_none=True) for taint in pod.tolerations],
        "topologySpreadConstraints": _spread(names.selector(role)),
        "imagePullSecrets": [{"name": name} for name in config.images.pull_secrets],
        "priorityClassName": priority_class(config, names, role),
        "runtimeClassName": pod.runtime_class if isinstance(pod, WorkerPod) else None,
    }
    return {
        "metadata": {"labels": labels},
        "spec": {key: value for key, value in spec.items() if value or value is False},
    }


CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_of(config: StackConfig, role: Role) -> Pod:
    """What a role's pods ask for."""
    kubernetes = config.kubernetes
    front: Mapping[str, Pod] = {
        "gateway": kubernetes.gateway,
        "scheduler": kubernetes.scheduler,
        "kv": kubernetes.kv,
    }
    return front.get(role) or worker_pod(config, role)


def image(config: StackConfig, role: Role) -> str:
    """A role's image, by digest."""
    found = getattr(config.images.digests, "worker" if role.endswith("-worker") else role)
    assert isinstance(found, str)  # infra.config.rules has asked for it
    return found


def ports(role: Role) -> dict[str, int]:
    """A role's ports by name."""
    if role == "gateway":
        return {"https": GATEWAY_PORT, "probe": PROBE_PORT}
    transfer = {"transfer": TRANSFER_PORT} if role == "prefill-worker" else {}
    return {"https": ROLE_PORT, "probe": PROBE_PORT, **transfer}


def grace_seconds(config: StackConfig) -> int:
    """How long a pod may take to end: looking away, the drain, and giving back."""
    return config.kubernetes.pre_stop_seconds + math.ceil(config.kubernetes.drain_seconds) + END_SECONDS


def priority_class(config: StackConfig, names: Names, role: Role) -> str | None:
    """The PriorityClass of a role's pods; its value is in its name, since it cannot be changed."""
    kind = "workers" if role.endswith("-worker") else "front"
    value: int | None = getattr(config.kubernetes.priority, kind)
    return None if value is None else f"{names.namespace}-{kind}-{value}".replace("--", "-minus-")


def disk(mounted: Iterable[Volume]) -> str:
    """What a pod may write to its node's disk: its folders there, and its log."""
    folders = [volume.source["emptyDir"] for volume in mounted if "emptyDir" in volume.source]
    return f"{LOG_MIB + math.ceil(sum(mib(folder['sizeLimit']) for folder in folders if 'medium' not in folder))}Mi"


def resources(pod: Pod, disk: str) -> dict[str, dict[str, Any]]:
    """Requests and limits. Memory and disk are kept in full, so that no pod is ended for another's sake."""
    devices: dict[str, Any] = {}
    if isinstance(pod, WorkerPod):
        wanted = {pod.gpu.resource: pod.gpu.count, EFA: pod.efa, "hugepages-2Mi": pod.hugepages_2mi}
        devices = {name: str(number) for name, number in wanted.items() if number}
    kept = {"memory": pod.memory, "ephemeral-storage": disk, **devices}
    return {
        "requests": {"cpu": pod.cpu, **kept},
        "limits": {"cpu": pod.cpu_limit or pod.cpu, **kept},
    }


def _probe(path: str, period: int, timeout: int, failures: int) -> dict[str, Any]:
    get = {"path": path, "port": "probe", "scheme": "HTTP"}
    return {"httpGet": get, "periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures}


PROBES = {
    # Until it first answers: imports on a cold node. Loading a model is not part of this, for a role answers meanwhile.
    "startupProbe": _probe("/health", 2, 5, 120),
    "readinessProbe": _probe("/ready", 3, 5, 3),
    # A step of a large batch may hold the interpreter for seconds: a role is dead after more than a minute only.
    "livenessProbe": _probe("/health", 10, 10, 7),
}


def _pre_stop(seconds: int) -> dict[str, Any]:
    # The role serves on while proxies and balancers learn that it goes; only then does it hear SIGTERM.
    return {"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}} if seconds else {}


def _spread(selector: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selector)},
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]
