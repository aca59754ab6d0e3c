"""Whether the account may have as many vCPUs, addresses, networks and ways out as the stack takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "quotas"
ON_DEMAND, SPOT = "onDemand", "spot"
# Quotas of EC2 and VPC by their names, which is how their console lists them.
KINDS = {ON_DEMAND: "Running On-Demand", SPOT: "Spot Instance Requests"}
ADDRESSES, NETWORKS, WAYS_OUT = "EC2-VPC Elastic IPs", "VPCs per Region", "NAT gateways per Availability Zone"
STANDARD = "acdhimrtz"  # families that share one quota (EC2 User Guide, "EC2 On-Demand Instance limits")
NUMBER = re.compile(r"[A-Z]+\d*")


class Running(msgspec.Struct, frozen=True):
    """An instance of the account, of this stack or another."""

    instance_type: str
    purchase: str
    vcpus: int
    ours: bool


class Facts(msgspec.Struct, frozen=True):
    """`quotas` by name; `vcpus` by instance type; `ways_out` by zone. What the stack has already is not counted."""

    quotas: dict[str, float]
    vcpus: dict[str, int]
    running: list[Running]
    addresses: int
    networks: int
    ways_out: dict[str, int]
    there: bool  # whether the stack's network is there already


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    ec2, quotas = cloud.client("ec2"), cloud.client("service-quotas")
    listed: dict[str, float] = {}
    for service in ("ec2", "vpc"):
        for page in quotas.get_paginator("list_service_quotas").paginate(ServiceCode=service):
            listed |= {one["QuotaName"]: one["Value"] for one in page["Quotas"]}
    types = sorted({node.instance_type for node in wanted.nodes})
    filters = [{"Name": "instance-type", "Values": types}]  # one that is not offered is absent, and no error
    vcpus = {
        one["InstanceType"]: one["VCpuInfo"]["DefaultVCpus"]
        for page in ec2.get_paginator("describe_instance_types").paginate(Filters=filters)
        for one in page["InstanceTypes"]
    }
    networks = ec2.describe_vpcs()["Vpcs"]
    addresses = ec2.describe_addresses()["Addresses"]
    return Facts(
        listed,
        vcpus,
        _running(ec2, wanted),
        sum(not _ours(one, wanted) for one in addresses),
        sum(not _ours(one, wanted) for one in networks),
        _ways_out(ec2, wanted),
        any(_ours(one, wanted) for one in networks),
    )


def _running(ec2: Any, wanted: Wanted) -> list[Running]:
    filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)
    found = [one for page in pages for each in page["Reservations"] for one in each["Instances"]]
    return [
        Running(
            one["InstanceType"],
            one.get("InstanceLifecycle", ON_DEMAND),
            one["CpuOptions"]["CoreCount"] * one["CpuOptions"]["ThreadsPerCore"] if "CpuOptions" in one else 0,
            _ours(one, wanted),
        )
        for one in found
    ]


def _ways_out(ec2: Any, wanted: Wanted) -> dict[str, int]:
    zones = {
        one["SubnetId"]: one["AvailabilityZone"]
        for page in ec2.get_paginator("describe_subnets").paginate()
        for one in page["Subnets"]
    }
    found: dict[str, int] = {}
    for page in ec2.get_paginator("describe_nat_gateways").paginate():
        for one in page["NatGateways"]:
            if one["State"] in ("pending", "available") and not _ours(one, wanted):
                zone = zones.get(one.get("SubnetId", ""), "")
                found[zone] = found.get(zone, 0) + 1
    return found


def _ours(resource: Mapping[str, object], wanted: Wanted) -> bool:
    tags = resource.get("Tags", [])
    return {"Key": "diphase:stack", "Value": wanted.stack} in tags if isinstance(tags, list) else False


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    yield from _vcpus(wanted, facts)
    network = wanted.config.network
    zones = {"zone": network.zones, "one": network.zones[:1], "none": []}[network.nat]
    yield from _number(facts, ADDRESSES, facts.addresses, len(zones))
    yield from _number(facts, NETWORKS, facts.networks, 1)
    if zones:
        most = max(zones, key=lambda zone: facts.ways_out.get(zone, 0))
        yield from _number(facts, WAYS_OUT, facts.ways_out.get(most, 0), 1)


def _vcpus(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    needs: dict[str, float] = {}
    for node in wanted.nodes:
        # Reservations of on-demand capacity have taken their part already, and blocks have none (EC2 User Guide,
        # "Capacity Reservations", "Capacity Blocks for ML").
        if node.purchase not in KINDS or node.instance_type not in facts.vcpus:
            continue
        name = quota_of(node.instance_type, node.purchase, facts.quotas)
        if name is None:
            found = f"no quota names {node.instance_type} ({node.purchase})"
            yield Finding(NAME, "warning", found, "look in Service Quotas, Amazon EC2, for its family")
            continue
        needs[name] = needs.get(name, 0) + node.most * facts.vcpus[node.instance_type]
    for name, need in needs.items():
        used = sum(
            one.vcpus
            for one in facts.running
            if not one.ours and quota_of(one.instance_type, one.purchase, facts.quotas) == name
        )
        yield from _number(facts, name, used, need, unit=" vCPUs")


def _number(facts: Facts, name: str, used: float, need: float, unit: str = "") -> Iterator[Finding]:
    if need == 0:
        return
    quota = facts.quotas.get(name)
    if quota is None:
        yield Finding(NAME, "warning", f"the quota {name} is not listed", "look in Service Quotas")
    elif used + need > quota:
        yield Finding(
            NAME,
            "fault",
            f"{name}: {quota:.0f}{unit}; others use {used:.0f}, and this stack takes up to {need:.0f}",
            f"ask for {used + need:.0f} in Service Quotas (days, for GPUs), or let the pools be smaller",
        )
    else:
        yield Finding(NAME, "ok", f"{name}: {quota:.0f}{unit} for {used:.0f} + {need:.0f}")


def quota_of(instance_type: str, purchase: str, quotas: Mapping[str, float]) -> str | None:
    """The name of the quota that an instance counts against: one of its generation (P5), else of its letter (P)."""
    family = instance_type.partition(".")[0]
    matched = re.match(r"([a-z]+?)(\d+)", family)
    if matched is None or purchase not in KINDS:
        return None
    letters, generation = matched.groups()
    wanted = [f"{letters}{generation}".upper(), letters.upper()]
    named = [(name, NUMBER.findall(name.replace(KINDS[purchase], ""))) for name in quotas if KINDS[purchase] in name]
    for token in wanted:
        for name, words in named:
            if token in words and ("Standard" not in name or letters in STANDARD):
                return name
    return None


CHECK = Check(
    NAME,
    "vCPUs by family and purchase, Elastic IPs, VPCs and NAT gateways within the account's quotas, beside what runs",
    (
        "servicequotas:ListServiceQuotas",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeVpcs",
        "ec2:DescribeAddresses",
        "ec2:DescribeSubnets",
        "ec2:DescribeNatGateways",
    ),
    gather,
    judge,
)
