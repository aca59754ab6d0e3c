"""The group of the edge: the name that clients use, its certificate, the load balancer and what it lets through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.config.group import DnsName, Group
from infra.config.kubernetes import Cidr

EVERYWHERE = "0.0.0.0/0"
Tls = Literal["ELBSecurityPolicy-TLS13-1-2-2021-06", "ELBSecurityPolicy-TLS13-1-3-2021-06"]


class Waf(Group):
    """The web application firewall before the load balancer."""

    requests_per_five_minutes: int = Field(
        3000, ge=10, le=2_000_000_000, description="requests of one address in five minutes; more are refused with 429"
    )
    managed_rules: bool = Field(
        True, description="AWS's lists of known bad inputs and of addresses with a bad reputation"
    )
    log_days: int = Field(30, ge=1, description="how long its log of refused requests is kept")


class CloudFront(Group):
    """A content delivery network before the load balancer: its edge locations shorten handshakes; nothing is cached."""

    price_class: Literal["PriceClass_100", "PriceClass_200", "PriceClass_All"] = Field(
        "PriceClass_100", description="edge locations; 100 is North America and Europe"
    )
    certificate_arn: Annotated[str, Field(pattern=r"^arn:aws:acm:us-east-1:\d{12}:certificate/[\w-]+$")] = Field(
        description="certificate of the host; CloudFront reads those of us-east-1 only"
    )


class Edge(Group):
    """Of the aws target. Where clients of a region come in: HTTPS only, at a name in Route 53."""

    host: DnsName | None = Field(None, description="name that clients use, such as api.example.com")
    zone_id: Annotated[str, Field(pattern=r"^Z[A-Z0-9]{5,31}$")] | None = Field(
        None, description="id of the public hosted zone that holds `host`"
    )
    routing: Literal["simple", "latency", "failover"] = Field(
        "simple",
        description="which of several regions with the same `host` a client gets: the one, the nearest, or "
        "the primary as long as it is healthy",
    )
    failover: Literal["primary", "secondary"] | None = Field(None, description="this region's part, of failover")
    region_host: DnsName | None = Field(
        None, description="this region's own name beside `host`, for its checks; `REGION.HOST` when absent"
    )
    health_seconds: Literal[10, 30] = Field(30, description="how often Route 53 asks for the region's health")
    idle_seconds: int = Field(900, ge=60, le=4000, description="silence after which the load balancer ends a stream")
    drain_seconds: int = Field(
        120, ge=0, le=3600, description="how long a pod that is taken out may finish its streams"
    )
    scheme: Literal["internet-facing", "internal"] = Field("internet-facing", description="of the load balancer")
    allowed_cidrs: list[Cidr] = Field([EVERYWHERE], min_length=1, description="who may connect to port 443")
    tls: Tls = Field("ELBSecurityPolicy-TLS13-1-2-2021-06", description="versions and ciphers of TLS")
    waf: Waf | None = Field(Waf(), description="none when null")
    cloudfront: CloudFront | None = Field(None, description="none when absent")

    @model_validator(mode="after")
    def _consistent(self) -> Edge:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if (self.routing == "failover") != (self.failover is not None):
            yield "routing failover and failover (primary or secondary) need each other: set both, or neither"
        if (self.host is None) != (self.zone_id is None):
            yield "host and zoneId need each other: set both (`aws route53 list-hosted-zones` lists the ids)"
        if self.cloudfront and self.scheme == "internal":
            yield "cloudfront needs scheme internet-facing: it reaches the load balancer from outside"
        if self.cloudfront and self.routing != "simple":
            yield f"cloudfront and routing {self.routing} exclude each other: clients reach CloudFront, not a region"
        if self.routing != "simple" and (self.scheme == "internal" or EVERYWHERE not in self.allowed_cidrs):
            yield (
                f"routing {self.routing} needs scheme internet-facing and {EVERYWHERE} in allowedCidrs: Route 53 asks "
                "for the region's health from all over the world"
            )
        if self.cloudfront and not self.host:
            yield "cloudfront needs host and zoneId: the name of its origin"
        if self.region_host and self.region_host == self.host:
            yield f"regionHost is host ({self.host}); it must be a name that no other region has"
