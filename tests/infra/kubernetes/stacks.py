"""Configurations of stacks, and their manifests, for tests that look at what is declared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import yaml

from infra.config import NAMESPACE, StackConfig
from infra.kubernetes import entry, secrets
from infra.kubernetes.names import MANIFEST, ROLES, Names
from infra.kubernetes.objects import LOGICAL_NAME
from infra.kubernetes.plan import Plan
from infra.kubernetes.stack import manifests

FOLDER = Path(__file__).parents[3] / "stacks"
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
NIGHT = {"start": "0 22 * * *", "end": "0 6 * * *", "timezone": "Asia/Shanghai", "min": 1}

# One for each way to have something, and a bit of everything.
STACKS: dict[str, dict[str, dict[str, Any]]] = {
    "least": {},
    "gpus": {"kubernetes": {"context": "c", "modelVolume": {"hostPath": "/models/a"}, "prefill": GPUS, "decode": GPUS}},
    "fetch": {"kubernetes": {"context": "c", "modelVolume": {"fetch": True}, "prefill": GPUS}},
    "fetch from S3": {
        "kubernetes": {"context": "c", "modelVolume": {"fetch": True}},
        "model": {"source": "s3://models/smol", "name": "smol", "revision": "1"},
    },
    "ingress": {"kubernetes": {"entry": {"kind": "ingress", "host": "a.example.com", "issuer": "letsencrypt"}}},
    "gateway api": {"kubernetes": {"entry": {"kind": "gatewayApi", "host": "a.example.com", "className": "envoy"}}},
    "given secret": {"kubernetes": {"entry": {"kind": "ingress", "host": "a.example.com", "tlsSecret": "mine"}}},
    "balancer": {"kubernetes": {"entry": {"serviceType": "LoadBalancer", "className": "a.example.com/nlb"}}},
    "node port": {"kubernetes": {"entry": {"serviceType": "NodePort", "addresses": ["10.0.0.1"], "nodePort": 30443}}},
    "priorities": {
        "kubernetes": {
            "priority": {"front": 1000, "workers": -5},
            "autoscaled": ["decode", "gateway"],
            "monitoringNamespace": "monitoring",
            "apiServerCidrs": ["10.0.0.0/16"],
        },
        "images": {"pullSecrets": ["registry"]},
    },
    "keda": SCALED,
    "nights": {
        **SCALED,
        "decode": {"replicas": 3},
        "autoscaling": {**SCALED["autoscaling"], "decode": {"max": 8, "min": 3, "offPeak": NIGHT}},
    },
    "hpa": {**SCALED, "autoscaling": {**SCALED["autoscaling"], "kind": "hpa"}},
}


def plan(**groups: dict[str, Any]) -> Plan:
    """The plan of a stack called test; a group's keys are added to those that every stack needs."""
    values = {**LEAST, **{name: {**LEAST.get(name, {}), **group} for name, group in groups.items()}}
    return Plan(StackConfig.parse(values), Names.of("test", None), "api-keys-0")


def merged(groups: dict[str, dict[str, Any]]) -> Plan:
    """The plan of one of STACKS."""
    defaults = {"context": "test", "modelVolume": {"claim": "models"}}
    return plan(**{**groups, "kubernetes": {**defaults, **groups.get("kubernetes", {})}})


def every() -> Iterator[tuple[str, Plan]]:
    """The plans of STACKS, and of each file in stacks/ that is for a cluster."""
    yield from ((name, merged(groups)) for name, groups in STACKS.items())
    for file in sorted(FOLDER.glob("Pulumi.*.yaml")):
        values = {
            key.removeprefix(f"{NAMESPACE}:"): value
            for key, value in yaml.safe_load(file.read_text())["config"].items()
        }
        config = StackConfig.parse(values)
        if config.target != "local" and config.serves:
            name = file.name.split(".")[1]
            yield file.name, Plan(config, Names.of(name, config.kubernetes.namespace), "api-keys-0")


async def secret_manifests(made: Plan) -> list[MANIFEST]:
    """What `manifests` leaves out, with contents of no meaning."""
    pair = {"tls.crt": "certificate", "tls.key": "key"}
    found = [secrets.keys_secret(made, "[]"), *(secrets.tls_secret(made, role, pair, "ca") for role in ROLES)]
    if entry.has_own_certificate(made):
        found += [secrets.edge_secret(made, pair), secrets.trusted(made, entry.CA_CONFIG_MAP, "ca")]
    resolved = [await pulumi.Output.from_input(one).future() for one in found]
    return [{key: value for key, value in one.items() if key != LOGICAL_NAME} for one in resolved if one]


def found(made: Plan, kind: str, name: str) -> MANIFEST:
    """One of a stack's manifests."""
    hits = [m for m in manifests(made) if m["kind"] == kind and m["metadata"]["name"] == name]
    assert len(hits) == 1, f"{len(hits)} of {kind} {name}"
    return hits[0]


def pod(made: Plan, role: str) -> dict[str, Any]:
    """The pod template of a role."""
    template: dict[str, Any] = found(made, "StatefulSet" if role == "kv" else "Deployment", role)["spec"]["template"]
    return template
