"""Where clients come in: a Service, an Ingress, or a Gateway of the Gateway API, and its certificate. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from infra.config.entry import Entry
from infra.kubernetes.names import CLIENT_PORT, INTERNAL_NAME, MANIFEST
from infra.kubernetes.plan import EDGE_SECRET, Plan
from infra.kubernetes.workload import UNAWAITED

CA_CONFIG_MAP = "edge-ca"


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """The one way in. The gateway's pods always have TLS of their own; a proxy before them has it, too."""
    entry = plan.config.kubernetes.entry
    yield service(plan)
    if entry.issuer:
        yield _certificate(plan)
    if entry.kind == "ingress":
        yield _ingress(plan)
    if entry.kind == "gatewayApi":
        yield _gateway(plan)
        yield _route(plan)
        yield _backend_tls(plan)


def own_certificate_names(plan: Plan) -> Sequence[str]:
    """The names that the stack's own CA puts into the edge's certificate."""
    entry = plan.config.kubernetes.entry
    names = [
        entry.host,
        "gateway",
        plan.names.host("gateway"),
        INTERNAL_NAME,
        "localhost",
        "127.0.0.1",
        *entry.addresses,
    ]
    return [name for name in dict.fromkeys(names) if name]


def has_own_certificate(plan: Plan) -> bool:
    """Whether nobody else gives the edge its certificate."""
    return not (plan.config.kubernetes.entry.tls_secret or plan.config.kubernetes.entry.issuer)


def is_balanced(entry: Entry) -> bool:
    """Whether the cluster's load balancers say where the gateway's Service is reached."""
    return entry.kind == "service" and entry.service_type == "LoadBalancer"


def service(plan: Plan) -> MANIFEST:
    """The gateway's Service: what clients connect to, or what the proxy before it does."""
    entry = plan.config.kubernetes.entry
    direct = entry.kind == "service"
    port: dict[str, Any] = {"name": "https", "port": CLIENT_PORT, "targetPort": "https", "appProtocol": "https"}
    spec: dict[str, Any] = {
        "type": entry.service_type if direct else "ClusterIP",
        "selector": plan.names.selector("gateway"),
        "ports": [port | ({"nodePort": entry.node_port} if entry.node_port else {})],
    }
    if is_balanced(entry) and entry.class_name:
        spec["loadBalancerClass"] = entry.class_name
    annotations = (entry.annotations if direct else {}) | UNAWAITED
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": plan.names.metadata("gateway", "gateway", annotations=annotations),
        "spec": spec,
    }


def _certificate(plan: Plan) -> MANIFEST:
    entry = plan.config.kubernetes.entry
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": plan.names.metadata(EDGE_SECRET, "gateway"),
        "spec": {
            "secretName": EDGE_SECRET,
            "dnsNames": [entry.host],
            "issuerRef": {"group": "cert-manager.io", "kind": entry.issuer_kind, "name": entry.issuer},
            "privateKey": {"algorithm": "ECDSA", "rotationPolicy": "Always"},
            "usages": ["digital signature", "server auth"],
        },
    }


def _ingress(plan: Plan) -> MANIFEST:
    entry = plan.config.kubernetes.entry
    backend = {"service": {"name": "gateway", "port": {"number": CLIENT_PORT}}}
    spec: dict[str, Any] = {
        "tls": [{"hosts": [entry.host], "secretName": plan.edge_secret}],
        "rules": [{"host": entry.host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
    }
    if entry.class_name:
        spec["ingressClassName"] = entry.class_name
    annotations = {**NGINX, **entry.annotations, **UNAWAITED}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": plan.names.metadata("gateway", "gateway", annotations=annotations),
        "spec": spec,
    }


# For the controllers that know these: TLS to the gateway, answers as they are written, and streams that last.
NGINX = {
    "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
    "nginx.ingress.kubernetes.io/proxy-buffering": "off",
    "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
    "nginx.ingress.kubernetes.io/proxy-body-size": "0",
}


def _gateway(plan: Plan) -> MANIFEST:
    entry = plan.config.kubernetes.entry
    listener = {
        "name": "https",
        "protocol": "HTTPS",
        "port": CLIENT_PORT,
        "hostname": entry.host,
        "tls": {"mode": "Terminate", "certificateRefs": [{"kind": "Secret", "name": plan.edge_secret}]},
        "allowedRoutes": {"namespaces": {"from": "Same"}},
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": plan.names.metadata("gateway", "gateway", annotations=dict(entry.annotations)),
        "spec": {"gatewayClassName": entry.class_name, "listeners": [listener]},
    }


def _route(plan: Plan) -> MANIFEST:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": plan.names.metadata("gateway", "gateway"),
        "spec": {
            "parentRefs": [{"name": "gateway"}],
            "hostnames": [plan.config.kubernetes.entry.host],
            "rules": [{"backendRefs": [{"name": "gateway", "port": CLIENT_PORT}]}],
        },
    }


def _backend_tls(plan: Plan) -> MANIFEST:
    """The proxy speaks TLS to the gateway's pods, and knows whose certificate to expect."""
    own = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": CA_CONFIG_MAP}]}
    trust = own if has_own_certificate(plan) else {"wellKnownCACertificates": "System"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": plan.names.metadata("gateway", "gateway"),
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "gateway"}],
            "validation": {"hostname": plan.config.kubernetes.entry.host, **trust},
        },
    }
