"""The kv service: one pod with a name that stays. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from infra.kubernetes.names import MANIFEST
from infra.kubernetes.plan import Plan
from infra.kubernetes.pod import template
from infra.kubernetes.workload import HISTORY, STEADY_SECONDS, UNAWAITED, budget, headless


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """What it knows is soft: while it is away, no request depends on it."""
    spec = {
        "replicas": 1,
        "serviceName": "kv",
        "selector": {"matchLabels": plan.names.selector("kv")},
        # In the order of their numbers, a pod that never gets ready would also hold up the release that mends it.
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "minReadySeconds": STEADY_SECONDS,
        "revisionHistoryLimit": HISTORY,
        "template": template(plan, "kv"),
    }
    yield headless(plan, "kv")
    metadata = plan.names.metadata("kv", "kv", annotations=UNAWAITED)
    yield {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
    yield budget(plan, "kv")
