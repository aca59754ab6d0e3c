"""Whether the zones are there and offer the instance types that nodes shall have in them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Node, Wanted

NAME = "offerings"


class Facts(msgspec.Struct, frozen=True):
    """`zones` that the account may use; `offered`: the zones of each instance type."""

    zones: list[str]
    offered: dict[str, list[str]]


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    ec2 = cloud.client("ec2")
    zones = [
        one["ZoneName"] for one in ec2.describe_availability_zones()["AvailabilityZones"] if one["State"] == "available"
    ]
    offered: dict[str, list[str]] = {node.instance_type: [] for node in wanted.nodes}
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": sorted(offered)}]
    )
    for page in pages:
        for one in page["InstanceTypeOfferings"]:
            offered[one["InstanceType"]].append(one["Location"])
    return Facts(sorted(zones), {name: sorted(places) for name, places in offered.items()})


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    if strange := [zone for zone in wanted.config.network.zones if zone not in facts.zones]:
        yield Finding(
            NAME,
            "fault",
            f"network.zones has {', '.join(strange)}, which this account can't use",
            f"take of {', '.join(facts.zones)}",
        )
    for node in wanted.nodes:
        yield _offered(node, facts.offered[node.instance_type])


def _offered(node: Node, zones: list[str]) -> Finding:
    what = f"{node.pool}: {node.instance_type}"
    missing = [zone for zone in node.zones if zone not in zones]
    if not missing:
        return Finding(NAME, "ok", f"{what} is offered in {', '.join(node.zones)}")
    if not zones:
        advice = "take another type (`diphase capacity` finds them), or another region"
        return Finding(NAME, "fault", f"{what} is offered nowhere in this region", advice)
    found = f"{what} is not offered in {', '.join(missing)}"
    advice = f"it is in {', '.join(zones)}: set the pool's zone and network.zones to that"
    # Auto Scaling takes the zones that there are; a pool with none of them has no nodes.
    return Finding(NAME, "fault" if missing == list(node.zones) else "warning", found, advice)


CHECK = Check(
    NAME,
    "the zones can be used, and offer the instance types of the pools",
    ("ec2:DescribeAvailabilityZones", "ec2:DescribeInstanceTypeOfferings"),
    gather,
    judge,
)
