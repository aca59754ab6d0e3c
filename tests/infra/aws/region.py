"""A configuration of the aws target that is right, for tests to make wrong."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from infra.config import StackConfig

IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/diphase/%s@sha256:{'0' * 64}"
RIGHT: Mapping[str, Any] = {
    "target": "aws",
    "region": {"name": "us-east-1", "account": "123456789012", "environment": "test"},
    "network": {"zones": ["us-east-1a", "us-east-1b", "us-east-1c"]},
    "cluster": {"admins": ["arn:aws:iam::123456789012:role/deploy"]},
    "capacity": {
        "prefill": {"instanceType": "p5.48xlarge", "zone": "us-east-1a"},
        "decode": {"instanceType": "p5en.48xlarge", "zone": "us-east-1a"},
    },
}
SERVING: Mapping[str, Any] = {
    "model": {"name": "m", "revision": "r", "source": "s3://weights/m"},
    "images": {"digests": {role: IMAGE % role for role in ("gateway", "scheduler", "worker", "kv")}},
}


def changed(changes: Mapping[str, Any], base: Mapping[str, Any] = RIGHT) -> dict[str, Any]:
    """The right configuration with changes by path, such as capacity.prefill.zone; None takes a key away."""
    values = copy.deepcopy(dict(base))
    for path, value in changes.items():
        *groups, key = path.split(".")
        group = values
        for name in groups:
            group = group.setdefault(name, {})
        group[key] = value
        if value is None:
            del group[key]
    return values


def config(changes: Mapping[str, Any] | None = None, *, serving: bool = False) -> StackConfig:
    """What is right, parsed; with images where it is to serve."""
    return StackConfig.parse(changed(changes or {}, {**RIGHT, **(SERVING if serving else {})}))
