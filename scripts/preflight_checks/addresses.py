"""Whether the stack's blocks of addresses are its own, and how many are left of a network that is there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from infra.config.aws.network import overlapping
from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding, Verdict
from scripts.preflight_checks.wanted import Wanted

NAME = "addresses"
# A prefix of /28 for pods of each node that is added, and some for load balancers, which take up to 8 free addresses
# in each subnet (Elastic Load Balancing, "Subnets for your load balancer").
FEW = 32


class Vpc(msgspec.Struct, frozen=True):
    """A network of the account in this region."""

    id: str
    blocks: list[str]
    ours: bool


class Facts(msgspec.Struct, frozen=True):
    """`free` are the addresses left in each subnet of the stack's network, where that is there."""

    vpcs: list[Vpc]
    free: dict[str, int] = {}


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    ec2 = cloud.client("ec2")
    mine = {"Key": "diphase:stack", "Value": wanted.stack}
    vpcs = [
        Vpc(
            one["VpcId"],
            [each["CidrBlock"] for each in one.get("CidrBlockAssociationSet", [])] or [one["CidrBlock"]],
            mine in one.get("Tags", []),
        )
        for page in ec2.get_paginator("describe_vpcs").paginate()
        for one in page["Vpcs"]
    ]
    own = [vpc.id for vpc in vpcs if vpc.ours]
    filters = [{"Name": "vpc-id", "Values": own}]
    pages = ec2.get_paginator("describe_subnets").paginate(Filters=filters) if own else ()
    free = {
        next((tag["Value"] for tag in one.get("Tags", []) if tag["Key"] == "Name"), one["SubnetId"]): one[
            "AvailableIpAddressCount"
        ]
        for page in pages
        for one in page["Subnets"]
        # The control plane's are small by design, and take nothing else.
        if not one["CidrBlock"].endswith("/28")
    }
    return Facts(vpcs, free)


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    network = wanted.config.network
    clashes = [
        (vpc, block) for vpc in facts.vpcs if not vpc.ours for block in vpc.blocks if overlapping(network.cidr, block)
    ]
    for vpc, block in clashes:
        found = f"network.cidr ({network.cidr}) overlaps {block} of {vpc.id}, and the two can never be joined"
        yield Finding(NAME, "warning", found, "take a block that no network has, and list the others in network.peers")
    few = {name: left for name, left in facts.free.items() if left < FEW}
    for name, left in few.items():
        verdict: Verdict = "warning" if left else "fault"
        yield Finding(
            NAME, verdict, f"{name} has {left} free addresses", "add a zone to network.zones, or end what is idle"
        )
    if not (clashes or few):
        fullest = f"; {min(facts.free.values())} free in the fullest subnet" if facts.free else ""
        yield Finding(NAME, "ok", f"{network.cidr} is no other network's here{fullest}")


CHECK = Check(
    NAME,
    "network.cidr overlaps no other VPC of the account; subnets that are there have free addresses",
    ("ec2:DescribeVpcs", "ec2:DescribeSubnets"),
    gather,
    judge,
)
