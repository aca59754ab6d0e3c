"""What the workloads have in common: the Deployment around a pod, its disruption budget, its headless Service. Pure."""

from __future__ import annotations

from typing import Any

from infra.kubernetes.names import MANIFEST, Role
from infra.kubernetes.plan import Plan
from infra.kubernetes.pod import ports, template

HISTORY = 3
# A pod that is ready for a moment only is no progress.
STEADY_SECONDS = 3


def deployment(plan: Plan, role: Role, replicas: int, *, surge: int | str, unavailable: int | str) -> MANIFEST:
    """A role's Deployment; its rollouts go on with at most `surge` pods more, and `unavailable` less, than replicas.

    Both are numbers of pods, or shares such as 25%.
    """
    spec: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": plan.names.selector(role)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        "minReadySeconds": STEADY_SECONDS,
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": plan.config.kubernetes.ready_seconds,
        "template": template(plan, role),
    }
    metadata = plan.names.metadata(role, role, annotations=UNAWAITED)
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def budget(plan: Plan, role: Role) -> MANIFEST:
    """A drained node takes one pod of a role after the other; pods that are broken anyway do not hold it up."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": plan.names.metadata(role, role),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": plan.names.selector(role)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def headless(plan: Plan, role: Role) -> MANIFEST:
    """A name for all of a role's pods that are ready, each by its own address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": plan.names.metadata(role, role, annotations=UNAWAITED),
        "spec": {
            "clusterIP": "None",
            "selector": plan.names.selector(role),
            "ports": [{"name": name, "port": port, "targetPort": name} for name, port in ports(role).items()],
        },
    }


# Whether an object does its work is seen by the resource `rollouts`. Pulumi's provider would see it worse, and takes a
# pod that an autoscaler has just added for a change of the stack.
UNAWAITED = {"pulumi.com/skipAwait": "true"}
