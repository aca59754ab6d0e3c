"""The gateway's pods; infra.kubernetes.entry is how clients reach them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from infra.kubernetes.names import MANIFEST
from infra.kubernetes.plan import Plan
from infra.kubernetes.workload import budget, deployment


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """Gateways keep nothing but the requests that run."""
    yield deployment(plan, "gateway", plan.config.gateway.replicas, surge=1, unavailable=0)
    yield budget(plan, "gateway")
