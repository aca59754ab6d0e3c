"""The scheduler: replicas that each know every worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from infra.kubernetes.names import MANIFEST
from infra.kubernetes.plan import Plan
from infra.kubernetes.workload import budget, deployment, headless


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """Workers report to every address of the Service, gateways ask any."""
    yield headless(plan, "scheduler")
    yield deployment(plan, "scheduler", plan.config.scheduler.replicas, surge=1, unavailable=0)
    yield budget(plan, "scheduler")
