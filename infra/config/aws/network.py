"""The group of the network: address space, zones, ways out."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from infra.config.group import Group

# The blocks of private use (RFC 1918) and of carriers (RFC 6598), which AWS routes inside a VPC like any other.
PRIVATE = [ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")]


def _block(text: str) -> str:
    try:
        found = ipaddress.ip_network(text)
    except ValueError as wrong:
        raise ValueError(f"{text!r} is no block such as 10.0.0.0/16: {wrong}") from None
    if not isinstance(found, ipaddress.IPv4Network):
        raise ValueError(f"{text!r} is IPv6; take a block of IPv4 such as 10.0.0.0/16")
    if "/" not in text:
        raise ValueError(f"{text!r} has no length; write {text}/32 for one address, or a block such as 10.0.0.0/16")
    return text


Block = Annotated[str, AfterValidator(_block)]
Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
# What nodes and workloads ask for all day; each costs by the hour and zone (AWS PrivateLink pricing).
Service = Literal[
    "autoscaling",
    "ec2",
    "ecr.api",
    "ecr.dkr",
    "eks",
    "eks-auth",
    "elasticloadbalancing",
    "kms",
    "logs",
    "monitoring",
    "secretsmanager",
    "sqs",
    "ssm",
    "sts",
]
SERVICES: list[Service] = ["ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "sts"]


class Network(Group):
    """Of the aws target. One VPC: nodes and pods have addresses of their own, in blocks that no other region has."""

    cidr: Block = Field("10.0.0.0/16", description="of nodes and load balancers; /16 to /18")
    pod_cidr: Block = Field("100.64.0.0/16", description="of pods; /16 to /18. Need not be unknown elsewhere")
    zones: list[Zone] = Field(
        [], max_length=4, description="two to four, such as us-east-1a; required. Append, never reorder"
    )
    nat: Literal["zone", "one", "none"] = Field(
        "zone", description="ways out: one in each zone, one for all (cheaper, lost with its zone), or none"
    )
    endpoints: list[Service] = Field(SERVICES, description="AWS services that are reached without a way out, beside S3")
    flow_logs: Literal["all", "reject", "none"] = Field("reject", description="connections that are logged")
    peers: list[Block] = Field([], description="blocks of other networks, such as other regions: `cidr` avoids them")

    @model_validator(mode="after")
    def _consistent(self) -> Network:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        for key, text in (("cidr", self.cidr), ("podCidr", self.pod_cidr)):
            block = ipaddress.IPv4Network(text)
            if not 16 <= block.prefixlen <= 18:
                yield f"{key} is {text}; take a block between /16 and /18, for the subnets of four zones"
            if not any(block.subnet_of(private) for private in PRIVATE):
                yield f"{key} is {text}, addresses of the internet; take a private block such as 10.0.0.0/16"
        if overlapping(self.cidr, self.pod_cidr):
            yield f"cidr ({self.cidr}) and podCidr ({self.pod_cidr}) overlap; take blocks apart"
        yield from self._association()
        for peer in self.peers:
            if overlapping(self.cidr, peer):
                yield f"cidr ({self.cidr}) overlaps {peer} of peers; take a block that no other network has"
        for key, values in (("zones", self.zones), ("endpoints", self.endpoints), ("peers", self.peers)):
            if len(set(values)) < len(values):
                yield f"{key} lists something twice: leave one out"
        if len(self.zones) == 1:
            yield f"zones has {self.zones[0]} only; EKS needs two: add another"

    def _association(self) -> Iterator[str]:
        """VPC User Guide, "IPv4 CIDR block association restrictions": what may lie beside which primary block."""
        first, second = (ipaddress.IPv4Network(text) for text in (self.cidr, self.pod_cidr))
        rfc1918 = PRIVATE[:3]
        mine = next((one for one in rfc1918 if first.subnet_of(one)), None)
        other = next((one for one in rfc1918 if second.subnet_of(one)), None)
        if mine and other and mine != other:
            yield (
                f"podCidr ({self.pod_cidr}) can't be added to a VPC of {self.cidr}: AWS takes a block of {mine} or of "
                "100.64.0.0/10 there"
            )
        if second.overlaps(ipaddress.IPv4Network("198.19.0.0/16")):
            yield f"podCidr is {self.pod_cidr}; AWS keeps 198.19.0.0/16 to itself"


def overlapping(one: str, other: str) -> bool:
    """Whether two blocks share an address."""
    return ipaddress.IPv4Network(one).overlaps(ipaddress.IPv4Network(other))
