"""Where clients come in: certificate, firewall, load balancer, names. The balancer is made by its controller, of an
Ingress, so that pods are its targets as they come and go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws import lb

from infra.aws.certificate import Certificate, CertificateArgs
from infra.aws.cloudfront import CloudFront, CloudFrontArgs
from infra.aws.dns import HEALTH, Dns, DnsArgs, Target
from infra.aws.waf import Waf, WafArgs
from infra.config.aws.edge import Edge as EdgeConfig
from infra.kubernetes.names import CLIENT_PORT, MANIFEST
from infra.kubernetes.objects import KubernetesObject

CLASS = "alb"
SERVICE = "gateway"
# Not /metrics, which the gateway has too: that is for the Prometheus in the cluster.
PATHS = {"/v1": "Prefix", "/health": "Exact", "/ready": "Exact"}


@dataclass(frozen=True)
class EdgeArgs:
    """`logs` is the name of the bucket for access logs, `controller` what must run before there is a balancer."""

    config: EdgeConfig
    region: str
    namespace: str
    key: pulumi.Input[str]
    logs: pulumi.Input[str]
    cluster: pulumi.ProviderResource
    controller: Sequence[pulumi.Resource] = ()


class Edge(pulumi.ComponentResource):
    """`url` is what clients use; `balancer` the load balancer's own DNS name."""

    url: pulumi.Output[str]
    balancer: pulumi.Output[str]
    certificate: pulumi.Output[str]

    def __init__(self, name: str, args: EdgeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Edge", name, None, opts)
        config, child = args.config, pulumi.ResourceOptions(parent=self)
        if config.host is None or config.zone_id is None:
            raise ValueError("an edge needs edge.host and edge.zoneId")
        host = region_host(config, args.region)
        certified = CertificateArgs([config.host, host], config.zone_id)
        self.certificate = Certificate(f"{name}-certificate", certified, child).arn
        forwarded = config.cloudfront is not None
        waf = Waf(f"{name}-waf", WafArgs(config.waf, forwarded, args.key), child) if config.waf else None
        made = ingress(args, self.certificate, waf.arn if waf else None)
        options = pulumi.ResourceOptions(parent=self, provider=args.cluster, depends_on=list(args.controller))
        balancer = KubernetesObject(made, f"{name}-gateway", options)
        self.balancer = balancer.status.apply(_address)
        self.url = pulumi.Output.concat("https://", config.host)
        # Zones of load balancers are AWS's own, one for each region.
        zone = lb.get_hosted_zone_id_output(load_balancer_type="application", opts=pulumi.InvokeOptions(parent=self))
        here = Target(self.balancer, zone.id)
        front = here
        if config.cloudfront:
            origin = CloudFrontArgs(config.cloudfront, config.host, host)
            front = CloudFront(f"{name}-cloudfront", origin, child).target
        Dns(f"{name}-dns", DnsArgs(config, args.region, host, here, front), child)
        self.register_outputs({"url": self.url, "balancer": self.balancer})


def region_host(config: EdgeConfig, region: str) -> str:
    """The region's own name beside the shared one."""
    return config.region_host or f"{region}.{config.host}"


def ingress(args: EdgeArgs, certificate: pulumi.Input[str], firewall: pulumi.Input[str] | None) -> MANIFEST:
    """The Ingress of which the controller makes the load balancer (its guide, "Ingress annotations")."""
    backend = {"service": {"name": SERVICE, "port": {"number": CLIENT_PORT}}}
    paths = [{"path": path, "pathType": kind, "backend": backend} for path, kind in PATHS.items()]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": "edge",
            "namespace": args.namespace,
            "annotations": _annotations(args, certificate, firewall),
        },
        "spec": {
            "ingressClassName": CLASS,
            "rules": [{"http": {"paths": paths}}],
        },
    }


def _annotations(
    args: EdgeArgs, certificate: pulumi.Input[str], firewall: pulumi.Input[str] | None
) -> Mapping[str, pulumi.Input[str]]:
    config = args.config
    balancer = {
        "idle_timeout.timeout_seconds": str(config.idle_seconds),
        "access_logs.s3.enabled": "true",
        "access_logs.s3.bucket": args.logs,
        "access_logs.s3.prefix": "balancer",
        # Headers that are no headers are how requests are smuggled.
        "routing.http.drop_invalid_header_fields.enabled": "true",
        "routing.http.desync_mitigation_mode": "strictest",
        "deletion_protection.enabled": "false",
    }
    # A stream's length says nothing of the next one's: a pod gets a request when it has the fewest.
    targets = {
        "deregistration_delay.timeout_seconds": str(config.drain_seconds),
        "load_balancing.algorithm.type": "least_outstanding_requests",
    }
    found: dict[str, pulumi.Input[str]] = {
        "scheme": config.scheme,
        "target-type": "ip",
        "backend-protocol": "HTTPS",
        "listen-ports": json.dumps([{"HTTPS": CLIENT_PORT}]),
        "ssl-policy": config.tls,
        "inbound-cidrs": ",".join(config.allowed_cidrs),
        "healthcheck-protocol": "HTTPS",
        "healthcheck-path": HEALTH,
        "healthcheck-interval-seconds": "10",
        "healthy-threshold-count": "2",
        "load-balancer-attributes": _attributes(balancer),
        "target-group-attributes": _attributes(targets),
        "certificate-arn": certificate,
    }
    if firewall is not None:
        found["wafv2-acl-arn"] = firewall
    return {f"alb.ingress.kubernetes.io/{name}": value for name, value in found.items()}


def _attributes(values: Mapping[str, pulumi.Input[str]]) -> pulumi.Output[str]:
    pairs = [pulumi.Output.concat(name, "=", value) for name, value in values.items()]
    return pulumi.Output.all(*pairs).apply(lambda found: ",".join(map(str, found)))


def _address(status: Mapping[str, Any] | None) -> str:
    """The DNS name that the controller wrote into the Ingress; empty in a preview, which makes none."""
    ingress = ((status or {}).get("loadBalancer", {}).get("ingress") or [{}])[0]
    return str(ingress.get("hostname", ""))
