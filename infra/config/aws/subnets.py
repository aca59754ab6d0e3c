"""Which block each subnet has. Pure: the same zones always have the same blocks, and a new zone moves none of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from infra.config.aws.network import Network

Kind = Literal["private", "public", "cluster", "pods"]
# How much longer than the VPC's prefix a subnet's is, and where in the block the four of a kind begin: half of it is
# for nodes, then a thirty-second for each zone's load balancers, then the smallest for the control plane's interfaces.
LONGER: dict[Kind, int] = {"private": 3, "public": 6, "cluster": 10, "pods": 2}
FIRST: dict[Kind, int] = {"private": 0, "public": 32, "cluster": 576, "pods": 0}


@dataclass(frozen=True)
class Subnet:
    """One subnet as it is to be; `prefixes` is the part of a pods' subnet that is kept for prefixes of /28."""

    kind: Kind
    zone: str
    cidr: str
    prefixes: str | None = None

    @property
    def name(self) -> str:
        """Such as private-a."""
        return f"{self.kind}-{self.zone[-1]}"


def subnets(network: Network) -> Iterator[Subnet]:
    """Every subnet of a network, by kind and zone."""
    for kind, longer in LONGER.items():
        base = ipaddress.IPv4Network(network.pod_cidr if kind == "pods" else network.cidr)
        for place, zone in enumerate(network.zones):
            size = 2 ** (32 - base.prefixlen - longer)
            start = int(base.network_address) + (FIRST[kind] + place) * size
            block = ipaddress.IPv4Network((start, base.prefixlen + longer))
            # The other half is for the interfaces' own addresses, which would break prefixes up (VPC User Guide,
            # "Subnet CIDR reservations"; EKS best practices, "Prefix mode").
            kept = list(block.subnets(1))[1] if kind == "pods" else None
            yield Subnet(kind, zone, str(block), str(kept) if kept else None)
