"""Where in a zone instances lie: in a placement group, where a pool asks for one."""

from __future__ import annotations

import pulumi
from pulumi_aws import ec2

from infra.config.aws.capacity import RESERVED, Pool


def placement_group(name: str, pool: Pool, opts: pulumi.ResourceOptions) -> ec2.PlacementGroup | None:
    """The placement group of a pool, close together in one zone; none where a reservation says where its instances lie:
    one that was not made for this very group refuses it (Amazon EC2 User Guide, "Capacity Reservations in cluster
    placement groups")."""
    if not getattr(pool, "placement_group", False) or getattr(pool, "purchase", None) in RESERVED:
        return None
    return ec2.PlacementGroup(name, strategy="cluster", opts=opts)
