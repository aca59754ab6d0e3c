"""Who may talk to whom: nobody, but for the edges listed here. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from infra.kubernetes.names import GATEWAY_PORT, MANIFEST, PROBE_PORT, ROLE_PORT, ROLES, TRANSFER_PORT, Role
from infra.kubernetes.plan import Plan


class Edge(NamedTuple):
    """Pods of one role open connections to a port of another's."""

    source: Role
    target: Role
    port: int


EDGES = (
    Edge("gateway", "scheduler", ROLE_PORT),
    Edge("gateway", "prefill-worker", ROLE_PORT),
    Edge("gateway", "decode-worker", ROLE_PORT),
    Edge("prefill-worker", "scheduler", ROLE_PORT),
    Edge("decode-worker", "scheduler", ROLE_PORT),
    Edge("prefill-worker", "kv", ROLE_PORT),
    Edge("decode-worker", "kv", ROLE_PORT),
    Edge("decode-worker", "prefill-worker", TRANSFER_PORT),
)
# Who looks up names: kv and scheduler are only ever called.
RESOLVERS = frozenset(edge.source for edge in EDGES)
# Where clusters keep a DNS cache on each node.
NODE_DNS = "169.254.20.10/32"
# Where a pod on EKS asks for the credentials of its role: the agent on its node
# (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html).
POD_IDENTITY = "169.254.170.23/32"


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """A policy that denies everything, and one for each role that lists what it is allowed."""
    yield _policy(plan, "default-deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
    for role in ROLES:
        selector = {"matchLabels": plan.names.selector(role)}
        spec = {
            "podSelector": selector,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": list(_ingress(plan, role)),
            "egress": list(_egress(plan, role)),
        }
        yield _policy(plan, role, spec, role)


def _ingress(plan: Plan, role: Role) -> Iterator[dict[str, Any]]:
    if role == "gateway":
        yield {"ports": [_port(GATEWAY_PORT)]}  # from everywhere
    for edge in EDGES:
        if edge.target == role:
            yield {"from": [_pods(plan, edge.source)], "ports": [_port(edge.port)]}
    # Kubelet's probes come from the pod's own node, which is always allowed.
    kubernetes = plan.config.kubernetes
    readers: list[dict[str, Any]] = [{"ipBlock": {"cidr": cidr}} for cidr in kubernetes.api_server_cidrs]
    if kubernetes.monitoring_namespace:
        readers.append({"namespaceSelector": _namespace(kubernetes.monitoring_namespace)})
    if readers:
        yield {"from": readers, "ports": [_port(PROBE_PORT)]}


def _egress(plan: Plan, role: Role) -> Iterator[dict[str, Any]]:
    for edge in EDGES:
        if edge.source == role:
            yield {"to": [_pods(plan, edge.target)], "ports": [_port(edge.port)]}
    if role in RESOLVERS:
        dns = {"namespaceSelector": _namespace("kube-system"), "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}
        yield {"to": [dns, {"ipBlock": {"cidr": NODE_DNS}}], "ports": [_port(53, "UDP"), _port(53)]}
    if plan.config.kubernetes.model_volume.fetch and role in ("gateway", "prefill-worker", "decode-worker"):
        yield {"ports": [_port(443)]}  # to wherever models are kept
        if plan.config.model.source.startswith("s3://"):
            yield {"to": [{"ipBlock": {"cidr": POD_IDENTITY}}], "ports": [_port(80)]}


def _policy(plan: Plan, name: str, spec: dict[str, Any], role: Role | None = None) -> MANIFEST:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": plan.names.metadata(name, role),
        "spec": spec,
    }


def _pods(plan: Plan, role: Role) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": plan.names.selector(role)}}


def _namespace(name: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def _port(port: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"protocol": protocol, "port": port}
