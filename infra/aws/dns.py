"""The names of a region: its own, by which its health is asked, and the one that all regions share."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_aws import route53

from infra.config.aws.edge import Edge as EdgeConfig

HEALTH = "/ready"  # not only alive: a gateway with nobody to serve a request sends no client here
FAILURES = 3


@dataclass(frozen=True)
class Target:
    """Where a name leads: an AWS resource with a DNS name in a hosted zone of AWS's own."""

    name: pulumi.Input[str]
    zone: pulumi.Input[str]


@dataclass(frozen=True)
class DnsArgs:
    """`balancer` is the region's load balancer; `front` is what clients get by `host`, the same or CloudFront."""

    config: EdgeConfig
    region: str
    region_host: str
    balancer: Target
    front: Target


class Dns(pulumi.ComponentResource):
    """Records and the health check. `health_check` is None where there is only one region."""

    health_check: pulumi.Output[str] | None = None

    def __init__(self, name: str, args: DnsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Dns", name, None, opts)
        config, child = args.config, pulumi.ResourceOptions(parent=self)
        assert config.host is not None
        assert config.zone_id is not None
        own = _alias(f"{name}-region", args.region_host, config.zone_id, args.balancer, child)
        if config.routing == "simple":
            _alias(f"{name}-host", config.host, config.zone_id, args.front, child)
        else:
            check = route53.HealthCheck(
                f"{name}-health",
                type="HTTPS",
                fqdn=args.region_host,
                port=443,
                resource_path=HEALTH,
                request_interval=config.health_seconds,
                failure_threshold=FAILURES,
                enable_sni=True,
                opts=pulumi.ResourceOptions(parent=self, depends_on=[own]),
            )
            self.health_check = check.id
            self._routed(name, args, check, child)
        self.register_outputs({})

    def _routed(self, name: str, args: DnsArgs, check: route53.HealthCheck, child: pulumi.ResourceOptions) -> None:
        """The region's record among those of the same name."""
        config = args.config
        part = config.failover
        failover = route53.RecordFailoverRoutingPolicyArgs(type=part.upper()) if part else None
        latency = route53.RecordLatencyRoutingPolicyArgs(region=args.region) if config.routing == "latency" else None
        route53.Record(
            f"{name}-host",
            zone_id=config.zone_id or "",
            name=config.host,
            type="A",
            aliases=[_to(args.front)],
            set_identifier=args.region,
            failover_routing_policies=[failover] if failover else None,
            latency_routing_policies=[latency] if latency else None,
            health_check_id=check.id,
            opts=child,
        )


def _alias(name: str, host: str, zone: str, target: Target, options: pulumi.ResourceOptions) -> route53.Record:
    return route53.Record(name, zone_id=zone, name=host, type="A", aliases=[_to(target)], opts=options)


def _to(target: Target) -> route53.RecordAliasArgs:
    return route53.RecordAliasArgs(name=target.name, zone_id=target.zone, evaluate_target_health=True)
