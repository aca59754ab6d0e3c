"""Whether reserved capacity is there, of the right type and zone, and free; and whether any idles."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from infra.config.aws.capacity import RESERVED, GpuPool
from infra.config.aws.rules import KEYS
from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding, Verdict
from scripts.preflight_checks.wanted import Wanted

NAME = "reservations"
SOON_DAYS = 7
GONE = ("expired", "cancelled", "failed", "payment-failed", "unsupported")


class Reservation(msgspec.Struct, frozen=True):
    """`free` and `total` count instances; `days` is how long it lasts, None without an end."""

    id: str
    instance_type: str
    zone: str
    state: str
    total: int
    free: int
    block: bool
    days: float | None = None

    def __str__(self) -> str:
        return f"{self.id} ({self.instance_type}, {self.zone}, {self.state}, {self.free} of {self.total} free)"


class Facts(msgspec.Struct, frozen=True):
    """Those that are the account's or shared with it, and the nodes that the stack has in each already."""

    reservations: list[Reservation]
    ours: dict[str, int] = {}


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    ec2, found = cloud.client("ec2"), []
    for page in ec2.get_paginator("describe_capacity_reservations").paginate():
        for one in page["CapacityReservations"]:
            ends = one.get("EndDate")
            found.append(
                Reservation(
                    one["CapacityReservationId"],
                    one["InstanceType"],
                    one["AvailabilityZone"],
                    one["State"],
                    one["TotalInstanceCount"],
                    one["AvailableInstanceCount"],
                    one.get("ReservationType") == "capacity-block",
                    (ends - datetime.now(UTC)).total_seconds() / 86400 if ends else None,
                )
            )
    filters = [
        {"Name": "tag:diphase:stack", "Values": [wanted.stack]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    ours: dict[str, int] = {}
    for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
        for one in (each for group in page["Reservations"] for each in group["Instances"]):
            if taken := one.get("CapacityReservationId"):
                ours[taken] = ours.get(taken, 0) + 1
    return Facts(found, ours)


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    known = {one.id: one for one in facts.reservations}
    used = set()
    for name, pool in wanted.config.capacity.gpu_pools.items():
        if pool.purchase in RESERVED and pool.reservation_id:
            used.add(pool.reservation_id)
            found = known.get(pool.reservation_id)
            key = f"capacity.{KEYS[name]}"
            yield from _reserved(key, pool, found, facts) if found else _absent(key, pool, facts)
    types = {pool.instance_type for pool in wanted.config.capacity.gpu_pools.values()}
    for one in facts.reservations:
        if one.id not in used and one.instance_type in types and one.state == "active" and one.free:
            advice = "name it as reservationId of a pool with purchase reservation, or give it up"
            yield Finding(NAME, "warning", f"{one} is paid for, and no pool of this stack names it", advice)


def _absent(key: str, pool: GpuPool, facts: Facts) -> Iterator[Finding]:
    others = [str(one) for one in facts.reservations if one.state not in GONE]
    advice = f"take one of {'; '.join(others)}" if others else "the account has none here: reserve capacity first"
    yield Finding(NAME, "fault", f"{key}.reservationId {pool.reservation_id} is not there", advice)


def _reserved(key: str, pool: GpuPool, found: Reservation, facts: Facts) -> Iterator[Finding]:
    faults = list(_faults(key, pool, found, facts))
    yield from faults
    if found.days is not None and 0 <= found.days < SOON_DAYS:
        advice = "drain the pool before that, or prolong it: its nodes end with it"
        yield Finding(NAME, "warning", f"{found} ends in {found.days:.1f} days", advice)
    if not faults:
        yield Finding(NAME, "ok", f"{key}: {found}")


def _faults(key: str, pool: GpuPool, found: Reservation, facts: Facts) -> Iterator[Finding]:
    if found.instance_type != pool.instance_type:
        advice = f"set {key}.instanceType to {found.instance_type}, or name another reservation"
        yield Finding(NAME, "fault", f"{found} is of another type than {pool.instance_type}", advice)
    if found.zone != pool.zone:
        yield Finding(NAME, "fault", f"{found} is not in {pool.zone}", f"set {key}.zone to {found.zone}")
    if found.block != (pool.purchase == "block"):
        right = "block" if found.block else "reservation"
        found_kind = f"{found.id} is a {'capacity block' if found.block else 'capacity reservation'}"
        yield Finding(NAME, "fault", found_kind, f"set {key}.purchase to {right}")
    if found.state != "active":
        advice = "wait until it is active" if found.state not in GONE else "name another one"
        yield Finding(NAME, "fault", f"{found.id} is {found.state}", advice)
        return
    free = found.free + facts.ours.get(found.id, 0)
    if free < pool.max:
        verdict: Verdict = "fault" if free < pool.nodes else "warning"
        advice = f"reserve more, or let {key}.max be {free} at most"
        yield Finding(NAME, verdict, f"{found}: {pool.nodes} to {pool.max} nodes are wanted", advice)


CHECK = Check(
    NAME,
    "reservations and capacity blocks are active, of the pools' type and zone, with instances free; none idles",
    ("ec2:DescribeCapacityReservations", "ec2:DescribeInstances"),
    gather,
    judge,
)
