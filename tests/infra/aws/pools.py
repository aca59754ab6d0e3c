"""Capacity of every kind that there is, and what nodes need beside it, for tests of those who make nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.aws.permissions.statement import Place
from infra.config.aws.capacity import Capacity
from tests.infra.aws.recorder import ACCOUNT, REGION
from tests.infra.aws.region import config

PLACE = Place("aws", REGION, ACCOUNT)
SUBNETS = {f"{REGION}{letter}": f"subnet-0{letter}" for letter in "abc"}
GROUPS = {name: f"sg-0{place}" for place, name in enumerate(("cluster", "nodes", "efa", "store", "endpoints"))}
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/nodes"
TAGS = {"diphase:stack": "test", "diphase:environment": "test"}
RESERVED: Mapping[str, Any] = {"purchase": "reservation", "reservationId": "cr-0123456789abcdef0", "zone": f"{REGION}a"}
BLOCK: Mapping[str, Any] = {**RESERVED, "purchase": "block"}


def capacity(changes: Mapping[str, Any] | None = None) -> Capacity:
    """The right configuration's, with changes by path, such as decode.purchase, or of a whole pool."""
    return config({f"capacity.{path}": value for path, value in (changes or {}).items()}).capacity


def pool(instance_type: str = "p5.48xlarge", **more: Any) -> dict[str, object]:
    """A pool in a zone."""
    return {"instanceType": instance_type, "zone": f"{REGION}a", **more}
