"""Whether the hosted zone is there, public, holds the host, and is the one that the world asks."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.nameservers import name_servers, resolver
from scripts.preflight_checks.wanted import Wanted

NAME = "domain"


class Zone(msgspec.Struct, frozen=True):
    """`servers` are Route 53's for it; `asked` those that DNS names, None where DNS could not be asked."""

    name: str
    private: bool
    servers: list[str]
    asked: list[str] | None


class Facts(msgspec.Struct, frozen=True):
    """No zone where there is none of that id."""

    zone: Zone | None = None


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    edge = wanted.config.edge
    if edge.zone_id is None:
        return Facts()
    route53 = cloud.client("route53")
    try:
        found = route53.get_hosted_zone(Id=edge.zone_id)
    except route53.exceptions.NoSuchHostedZone:
        return Facts()
    name = found["HostedZone"]["Name"].rstrip(".")
    servers = sorted(one.rstrip(".").lower() for one in found.get("DelegationSet", {}).get("NameServers", []))
    private = bool(found["HostedZone"]["Config"]["PrivateZone"])
    return Facts(Zone(name, private, servers, None if private else name_servers(name, resolver())))


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    edge, zone = wanted.config.edge, facts.zone
    if edge.host is None:
        yield Finding(NAME, "ok", "no edge.host is wanted")
        return
    if zone is None:
        advice = "`aws route53 list-hosted-zones` lists the ids of this account"
        yield Finding(NAME, "fault", f"there is no hosted zone {edge.zone_id}", advice)
        return
    faults = list(_faults(edge.host, edge.zone_id, zone))
    yield from faults
    if not faults:
        yield Finding(NAME, "ok", f"{edge.host} lies in {zone.name}, whose servers the world asks")


def _faults(host: str, zone_id: str | None, zone: Zone) -> Iterator[Finding]:
    if zone.private:
        advice = "name a public one: certificates are validated, and clients come, from outside"
        yield Finding(NAME, "fault", f"hosted zone {zone_id} ({zone.name}) is private", advice)
    if host != zone.name and not host.endswith(f".{zone.name}"):
        yield Finding(
            NAME,
            "fault",
            f"{host} does not lie in {zone.name}",
            "set edge.zoneId to the zone that it is in, or edge.host",
        )
    if zone.private:
        return
    right = f"let the parent of {zone.name} name {', '.join(zone.servers)}"
    if zone.asked is None:
        yield Finding(NAME, "warning", f"DNS could not be asked who serves {zone.name}", f"see yourself: {right}")
    elif not set(zone.asked) & set(zone.servers):
        found = f"the world asks {', '.join(zone.asked) or 'nobody'} for {zone.name}: no certificate can be validated"
        yield Finding(NAME, "fault", found, right)
    elif set(zone.asked) != set(zone.servers):
        yield Finding(NAME, "warning", f"the world asks {', '.join(zone.asked)} for {zone.name}", right)


CHECK = Check(
    NAME,
    "edge.zoneId is there and public, edge.host lies in it, and DNS leads to its name servers",
    ("route53:GetHostedZone",),
    gather,
    judge,
)
