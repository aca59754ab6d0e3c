"""Quotas, offerings, reservations, addresses: each finding once, from facts; and what is gathered, from answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scripts.preflight_checks import addresses, offerings, quotas, reservations
from scripts.preflight_checks.quotas import ADDRESSES, NETWORKS, WAYS_OUT, Running, quota_of
from tests.scripts.preflight_checks.asked import OURS, judged, recorded, told, wanted

P, G, STANDARD = (
    "Running On-Demand P instances",
    "Running On-Demand G and VT instances",
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
)
P5_SPOT, OLD_SPOT, G_SPOT = (
    "All P5 Spot Instance Requests",
    "All P4, P3 and P2 Spot Instance Requests",
    "All G and VT Spot Instance Requests",
)
QUOTAS = {P: 384.0, G: 64.0, STANDARD: 64.0, P5_SPOT: 192.0, OLD_SPOT: 0.0, G_SPOT: 8.0}
QUOTAS |= {ADDRESSES: 5.0, NETWORKS: 5.0, WAYS_OUT: 5.0}
TYPES = {"m7i.xlarge": 4, "p5.48xlarge": 192, "p5en.48xlarge": 192, "g6e.2xlarge": 8}


def facts(**changes: Any) -> quotas.Facts:
    values = {"quotas": QUOTAS, "vcpus": TYPES, "running": [], "addresses": 0, "networks": 1, "ways_out": {}}
    return quotas.Facts(**{**values, "there": False, **changes})


@pytest.mark.parametrize(
    ("instance_type", "purchase", "name"),
    [
        ("p5en.48xlarge", "onDemand", P),
        ("p6-b200.48xlarge", "onDemand", P),
        ("g6e.2xlarge", "onDemand", G),
        ("m7i.xlarge", "onDemand", STANDARD),
        ("p5en.48xlarge", "spot", P5_SPOT),
        ("p4d.24xlarge", "spot", OLD_SPOT),
        ("g6e.2xlarge", "spot", G_SPOT),
        ("trn1.2xlarge", "onDemand", None),
        ("p5.48xlarge", "block", None),
    ],
)
def test_each_family_has_its_quota(instance_type: str, purchase: str, name: str | None) -> None:
    assert quota_of(instance_type, purchase, QUOTAS) == name


def test_what_fits_is_ok() -> None:
    found = judged(quotas.CHECK, facts())
    assert {one.verdict for one in found} == {"ok"}
    assert f"{P}: 384 vCPUs for 0 + 384" in told(found, "ok")


def test_what_others_run_is_counted_and_what_the_stack_runs_is_not() -> None:
    ours = Running("p5.48xlarge", "onDemand", 192, True)
    assert not told(judged(quotas.CHECK, facts(running=[ours])), "fault")
    others = Running("p4d.24xlarge", "onDemand", 96, False)
    said = told(judged(quotas.CHECK, facts(running=[ours, others])), "fault")
    assert f"{P}: 384 vCPUs; others use 96, and this stack takes up to 384 → ask for 480" in said


def test_reserved_capacity_takes_no_more_of_a_quota() -> None:
    one = {"purchase": "reservation", "reservationId": "cr-01234567", "instanceType": "p5.48xlarge"}
    reserved = {"zone": "us-east-1a", **one}
    what = wanted({"capacity.prefill": reserved, "capacity.decode": reserved})
    assert not told(judged(quotas.CHECK, facts(quotas={**QUOTAS, P: 0.0}), what), "fault")


def test_spot_has_quotas_of_its_own() -> None:
    spot = {"instanceType": "g6e.2xlarge", "purchase": "spot", "max": 2}
    what = wanted({"capacity.prefill": spot, "capacity.decode": spot})
    assert f"{G_SPOT}: 8 vCPUs" in told(judged(quotas.CHECK, facts(), what), "fault")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"addresses": 3}, f"{ADDRESSES}: 5; others use 3, and this stack takes up to 3"),
        ({"networks": 5}, f"{NETWORKS}: 5"),
        ({"ways_out": {"us-east-1b": 5}}, f"{WAYS_OUT}: 5"),
    ],
)
def test_networks_have_quotas_too(changes: dict[str, Any], says: str) -> None:
    assert says in told(judged(quotas.CHECK, facts(**changes)), "fault")


def test_a_family_without_a_quota_is_warned_of() -> None:
    said = told(judged(quotas.CHECK, facts(quotas={G: 1.0})), "warning")
    assert "no quota names p5.48xlarge" in said
    assert f"the quota {ADDRESSES} is not listed" in said


def test_quotas_are_gathered() -> None:
    instance = {"InstanceType": "p5.48xlarge", "CpuOptions": {"CoreCount": 96, "ThreadsPerCore": 2}}
    vcpus = {"DefaultVCpus": 192}
    with recorded(
        {
            "service-quotas": [
                ("list_service_quotas", {"Quotas": [{"QuotaName": P, "Value": 384.0}]}),
                ("list_service_quotas", {"Quotas": [{"QuotaName": NETWORKS, "Value": 5.0}]}),
            ],
            "ec2": [
                (
                    "describe_instance_types",
                    {"InstanceTypes": [{"InstanceType": "p5.48xlarge", "VCpuInfo": vcpus}]},
                ),
                ("describe_vpcs", {"Vpcs": [{"VpcId": "vpc-1"}, {"VpcId": "vpc-2", "Tags": OURS}]}),
                ("describe_addresses", {"Addresses": [{"PublicIp": "198.51.100.1"}]}),
                ("describe_instances", {"Reservations": [{"Instances": [instance, {**instance, "Tags": OURS}]}]}),
                ("describe_subnets", {"Subnets": [{"SubnetId": "subnet-1", "AvailabilityZone": "us-east-1a"}]}),
                (
                    "describe_nat_gateways",
                    {"NatGateways": [{"SubnetId": "subnet-1", "State": "available"}, {"State": "deleted"}]},
                ),
            ],
        }
    ) as cloud:
        found = quotas.gather(cloud, wanted())
    assert found.quotas == {P: 384.0, NETWORKS: 5.0}
    assert found.vcpus == {"p5.48xlarge": 192}
    assert found.running == [Running("p5.48xlarge", "onDemand", 192, ours) for ours in (False, True)]
    assert (found.addresses, found.networks, found.ways_out, found.there) == (1, 1, {"us-east-1a": 1}, True)


ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]
OFFERED = {"m7i.xlarge": ZONES, "p5.48xlarge": ["us-east-1a"], "p5en.48xlarge": ["us-east-1a"]}


@pytest.mark.parametrize(
    ("zones", "offered", "verdict", "says"),
    [
        (ZONES, {}, "ok", "prefill: p5.48xlarge is offered in us-east-1a"),
        (ZONES[:2], {}, "fault", "network.zones has us-east-1c"),
        (ZONES, {"p5en.48xlarge": ["us-east-1b"]}, "fault", "not offered in us-east-1a → it is in us-east-1b"),
        (ZONES, {"p5en.48xlarge": []}, "fault", "offered nowhere in this region"),
        (ZONES, {"m7i.xlarge": ZONES[:2]}, "warning", "system: m7i.xlarge is not offered in us-east-1c"),
    ],
)
def test_zones_must_offer_the_types(zones: list[str], offered: dict[str, list[str]], verdict: str, says: str) -> None:
    found = judged(offerings.CHECK, offerings.Facts(zones, {**OFFERED, **offered}))
    assert says in told(found, verdict)


def test_offerings_are_gathered() -> None:
    places = [{"InstanceType": "p5.48xlarge", "Location": zone} for zone in ("us-east-1b", "us-east-1a")]
    states = {"us-east-1a": "available", "us-east-1b": "impaired"}
    zones = [{"ZoneName": name, "State": state} for name, state in states.items()]
    with recorded(
        {
            "ec2": [
                ("describe_availability_zones", {"AvailabilityZones": zones}),
                ("describe_instance_type_offerings", {"InstanceTypeOfferings": places}),
            ]
        }
    ) as cloud:
        found = offerings.gather(cloud, wanted())
    assert found.zones == ["us-east-1a"]
    assert found.offered == {"m7i.xlarge": [], "p5.48xlarge": ["us-east-1a", "us-east-1b"], "p5en.48xlarge": []}


ID = "cr-0123456789abcdef0"
RESERVED = wanted(
    {
        "capacity.prefill": {
            "instanceType": "p5.48xlarge",
            "zone": "us-east-1a",
            "purchase": "reservation",
            "reservationId": ID,
            "nodes": 2,
            "max": 3,
        }
    }
)


def reservation(**changes: Any) -> reservations.Reservation:
    values = {"id": ID, "instance_type": "p5.48xlarge", "zone": "us-east-1a", "state": "active"}
    return reservations.Reservation(**{**values, "total": 3, "free": 3, "block": False, **changes})


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        ({}, "ok", "3 of 3 free"),
        ({"id": "cr-1"}, "fault", f"{ID} is not there → take one of cr-1"),
        ({"id": "cr-1"}, "warning", "is paid for, and no pool of this stack names it"),
        ({"id": "cr-1", "state": "expired"}, "fault", "the account has none here"),
        ({"instance_type": "p4d.24xlarge"}, "fault", "set capacity.prefill.instanceType to p4d.24xlarge"),
        ({"zone": "us-east-1b"}, "fault", "set capacity.prefill.zone to us-east-1b"),
        ({"block": True}, "fault", "set capacity.prefill.purchase to block"),
        ({"state": "pending"}, "fault", "wait until it is active"),
        ({"state": "expired"}, "fault", "name another one"),
        ({"free": 1}, "fault", "2 to 3 nodes are wanted → reserve more"),
        ({"free": 2}, "warning", "let capacity.prefill.max be 2 at most"),
        ({"days": 2.0}, "warning", "ends in 2.0 days → drain the pool"),
    ],
)
def test_a_reservation_must_be_the_pools(changes: dict[str, Any], verdict: str, says: str) -> None:
    found = judged(reservations.CHECK, reservations.Facts([reservation(**changes)]), RESERVED)
    assert says in told(found, verdict)


def test_nodes_that_the_stack_has_in_it_count_as_free() -> None:
    found = judged(reservations.CHECK, reservations.Facts([reservation(free=0)], {ID: 3}), RESERVED)
    assert [one.verdict for one in found] == ["ok"]


def test_reservations_are_gathered() -> None:
    one = {
        "CapacityReservationId": ID,
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "State": "active",
        "TotalInstanceCount": 3,
        "AvailableInstanceCount": 1,
        "ReservationType": "capacity-block",
        "EndDate": datetime.now(UTC) + timedelta(days=3),
    }
    taken = {"Instances": [{"CapacityReservationId": ID}] * 2}
    with recorded(
        {
            "ec2": [
                ("describe_capacity_reservations", {"CapacityReservations": [one]}),
                ("describe_instances", {"Reservations": [taken]}),
            ]
        }
    ) as cloud:
        found = reservations.gather(cloud, RESERVED)
    (read,) = found.reservations
    assert read == reservation(total=3, free=1, block=True, days=read.days)
    assert read.days == pytest.approx(3, abs=0.1)
    assert found.ours == {ID: 2}


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        ([addresses.Vpc("vpc-1", ["172.31.0.0/16"], False)], "ok", "is no other network's"),
        ([addresses.Vpc("vpc-1", ["10.0.0.0/16"], True)], "ok", "is no other network's"),
        ([addresses.Vpc("vpc-1", ["10.0.64.0/20"], False)], "warning", "overlaps 10.0.64.0/20 of vpc-1"),
    ],
)
def test_blocks_must_be_the_stacks_own(found: list[addresses.Vpc], verdict: str, says: str) -> None:
    assert says in told(judged(addresses.CHECK, addresses.Facts(found)), verdict)


@pytest.mark.parametrize(("left", "verdict"), [(0, "fault"), (12, "warning")])
def test_subnets_that_are_full_are_said(left: int, verdict: str) -> None:
    facts = addresses.Facts([], {"private-a": left, "private-b": 900})
    assert f"private-a has {left} free addresses" in told(judged(addresses.CHECK, facts), verdict)


def test_addresses_are_gathered() -> None:
    second = [{"CidrBlock": block} for block in ("10.0.0.0/16", "100.64.0.0/16")]
    network = {"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/16", "CidrBlockAssociationSet": second, "Tags": OURS}
    subnets = [
        {
            "SubnetId": "a",
            "CidrBlock": "10.0.0.0/19",
            "AvailableIpAddressCount": 9,
            "Tags": [{"Key": "Name", "Value": "n"}],
        },
        {"SubnetId": "b", "CidrBlock": "10.0.144.0/28", "AvailableIpAddressCount": 1},
    ]
    answers = [("describe_vpcs", {"Vpcs": [network]}), ("describe_subnets", {"Subnets": subnets})]
    with recorded({"ec2": answers}) as cloud:
        found = addresses.gather(cloud, wanted())
    assert found == addresses.Facts([addresses.Vpc("vpc-1", ["10.0.0.0/16", "100.64.0.0/16"], True)], {"n": 9})
