"""Manifests around agnhost, the container of Kubernetes' own tests: it serves, connects, and shows files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.toolchain.kubernetes.programs import Toolchain

IMAGE = Toolchain.reference("agnhost")
PORT = 8080
# What Pod Security `restricted` asks of a pod and of its containers.
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
SECURITY = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def container(*arguments: str, **more: Any) -> dict[str, Any]:
    """A container that runs agnhost with these arguments."""
    return {"name": "agnhost", "image": IMAGE, "args": list(arguments), "securityContext": SECURITY, **more}


def pod_spec(*containers: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "securityContext": POD_SECURITY,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 10,
        "containers": list(containers),
        **more,
    }


def pod(name: str, spec: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app": name} if labels is None else labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def deployment(name: str, replicas: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A Deployment whose pods are replaced one by one, none going before another is ready."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def server(**more: Any) -> dict[str, Any]:
    """A container that serves HTTP; one that is to end goes on for a while, until no one is sent to it any more."""
    return container(
        "netexec",
        f"--http-port={PORT}",
        readinessProbe={"httpGet": {"path": "/hostname", "port": PORT}, "periodSeconds": 1},
        lifecycle={"preStop": {"sleep": {"seconds": 2}}},
        **more,
    )


def service(name: str, kind: str = "ClusterIP") -> dict[str, Any]:
    spec = {"type": kind, "selector": {"app": name}, "ports": [{"port": PORT, "targetPort": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def policy(name: str, app: str | None, ingress: Sequence[Mapping[str, Any]], types: Sequence[str]) -> dict[str, Any]:
    """A NetworkPolicy on the pods of `app`, or on all."""
    selector = {"matchLabels": {"app": app}} if app else {}
    spec = {"podSelector": selector, "policyTypes": list(types), "ingress": list(ingress)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}
