"""Prefill and decode workers: one codebase, two Deployments. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from infra.kubernetes.autoscaling import scaled_roles
from infra.kubernetes.names import MANIFEST, Role
from infra.kubernetes.plan import Plan
from infra.kubernetes.volumes import worker_pod
from infra.kubernetes.workload import budget, deployment, headless

# Where nobody knows how many pods there will be, both phases take about four steps.
SCALED_STEP = "25%"


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """Both phases. They roll at the same time, since a new revision of one is of no use without the other's."""
    config = plan.config
    scaled = set(scaled_roles(config)) & {"prefill-worker", "decode-worker"}
    numbers: dict[Role, int] = {"prefill-worker": config.prefill.replicas, "decode-worker": config.decode.replicas}
    for role, replicas in numbers.items():
        step = SCALED_STEP if scaled else rollout_step(replicas, min(numbers.values()))
        surges = worker_pod(config, role).surges
        yield headless(plan, role)
        yield deployment(plan, role, replicas, surge=step if surges else 0, unavailable=0 if surges else step)
        yield budget(plan, role)


def rollout_step(replicas: int, fewest: int) -> int:
    """Pods of a phase that roll at once, so that both phases take as many steps as the smaller one has pods.

    Only workers of one revision are paired: so both revisions keep about the ratio of prefill to decode all the while.
    """
    return math.ceil(replicas / fewest)
