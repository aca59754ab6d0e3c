"""Configurations of stacks, and their manifests, for tests that look at what is declared."""

from __future__ import annotations

from typing import Any

from infra.config import StackConfig
from infra.kubernetes.names import MANIFEST, Names
from infra.kubernetes.plan import Plan
from infra.kubernetes.stack import manifests

IMAGES = {role: f"example.com/diphase/{role}@sha256:{'0' * 64}" for role in ("gateway", "scheduler", "worker", "kv")}
LEAST: dict[str, Any] = {
    "target": "kubernetes",
    "model": {"name": "SmolLM2", "revision": "0123abc"},
    "images": {"digests": IMAGES},
    "kubernetes": {"context": "test", "modelVolume": {"claim": "models"}},
}
GPUS = {
    "gpu": {"count": 8, "product": "NVIDIA H100 80GB HBM3", "driver": "570.86", "ecc": True},
    "efa": 4,
    "hugepages2Mi": "5120Mi",
    "sharedMemoryMib": 16384,
    "memory": "512Gi",
    "cpu": "64",
    "runtimeClass": "nvidia",
    "nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
# Every role scaled, as the least of a stack says it.
SCALED: dict[str, dict[str, Any]] = {
    "kubernetes": {"monitoringNamespace": "monitoring"},
    "autoscaling": {
        "prometheusUrl": "http://prometheus.monitoring.svc:9090",
        "prefill": {"max": 4},
        "decode": {"max": 8},
        "gateway": {"max": 5},
        "scheduler": {"max": 3},
    },
}


def plan(**groups: dict[str, Any]) -> Plan:
    """The plan of a stack called test; a group's keys are added to those that every stack needs."""
    values = {**LEAST, **{name: {**LEAST.get(name, {}), **group} for name, group in groups.items()}}
    return Plan(StackConfig.parse(values), Names.of("test", None), "api-keys-0")


def found(made: Plan, kind: str, name: str) -> MANIFEST:
    """One of a stack's manifests."""
    hits = [m for m in manifests(made) if m["kind"] == kind and m["metadata"]["name"] == name]
    assert len(hits) == 1, f"{len(hits)} of {kind} {name}"
    return hits[0]


def pod(made: Plan, role: str) -> dict[str, Any]:
    """The pod template of a role."""
    template: dict[str, Any] = found(made, "StatefulSet" if role == "kv" else "Deployment", role)["spec"]["template"]
    return template
