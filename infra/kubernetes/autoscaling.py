"""Who decides how many pods a role has: KEDA's ScaledObjects, or HorizontalPodAutoscalers and an adapter's rules. Pure.

Pods that are taken end as any other: they take no more requests, finish those that run, and wait until their KV is
fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from infra.config import StackConfig
from infra.config.autoscaling import Pace, Scaled
from infra.kubernetes.names import MANIFEST, Role
from infra.kubernetes.plan import Plan
from infra.kubernetes.signals import DEPLOYMENTS, Signal, cpu_percent, signals
from infra.kubernetes.workload import UNAWAITED

RULES = "autoscaling-rules"
# A query that fails once is asked again a moment later.
FAILURES = 3


def scaled_roles(config: StackConfig) -> list[Role]:
    """The roles whose number of pods something else than `replicas` decides, this stack's own scalers or others."""
    return [DEPLOYMENTS[role] for role in (*config.kubernetes.autoscaled, *config.autoscaling.scaled)]


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """A scaler for each role that is scaled."""
    autoscaling = plan.config.autoscaling
    for role in autoscaling.scaled:
        yield _scaled_object(plan, role) if autoscaling.kind == "keda" else _autoscaler(plan, role)
    if autoscaling.kind == "hpa" and autoscaling.scaled:
        yield _rules(plan)


def _scaled_object(plan: Plan, role: Scaled) -> MANIFEST:
    scaling, deployment = plan.config.autoscaling.scaled[role], DEPLOYMENTS[role]
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
        "minReplicaCount": scaling.off_peak.min if scaling.off_peak else scaling.min,
        "maxReplicaCount": scaling.max,
        "advanced": {"horizontalPodAutoscalerConfig": {"name": deployment, "behavior": _behavior(scaling.pace)}},
        "triggers": list(_triggers(plan, role)),
    }
    if cpu_percent(plan.config, role) is None:
        # Without what Prometheus knows: as many as there were to begin with, or as there are now. Where CPU is known
        # too, KEDA would not look at it any more; left alone, it then only ever adds pods.
        replicas = getattr(plan.config, role).replicas
        spec["fallback"] = {"failureThreshold": FAILURES, "replicas": replicas, "behavior": "currentReplicasIfHigher"}
    metadata = plan.names.metadata(deployment, deployment, annotations=UNAWAITED)
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec}


def _triggers(plan: Plan, role: Scaled) -> Iterator[dict[str, Any]]:
    autoscaling = plan.config.autoscaling
    for signal in signals(plan.config, plan.names.namespace, role):
        metadata = {
            "serverAddress": str(autoscaling.prometheus_url),
            "query": signal.query,
            "threshold": f"{signal.target:g}",
            "ignoreNullValues": "false",  # no answer is no load of zero
        }
        name = signal.name.replace("_", "-")
        yield {"type": "prometheus", "name": name, "metricType": signal.type, "metadata": metadata}
    percent, off_peak = cpu_percent(plan.config, role), autoscaling.scaled[role].off_peak
    if percent is not None:
        yield {"type": "cpu", "name": "cpu", "metricType": "Utilization", "metadata": {"value": str(percent)}}
    if off_peak is not None:
        # KEDA's hours are those of more pods: from the end of the others to their start.
        hours = {"timezone": off_peak.timezone, "start": off_peak.end, "end": off_peak.start}
        floor = {"desiredReplicas": str(autoscaling.scaled[role].min)}
        yield {"type": "cron", "name": "peak", "metadata": {**hours, **floor}}


def _autoscaler(plan: Plan, role: Scaled) -> MANIFEST:
    scaling, deployment = plan.config.autoscaling.scaled[role], DEPLOYMENTS[role]
    metrics: list[dict[str, Any]] = []
    for signal in signals(plan.config, plan.names.namespace, role):
        key = "averageValue" if signal.type == "AverageValue" else "value"
        target = {"type": signal.type, key: _quantity(signal.target)}
        external = {"metric": {"name": metric_name(plan, role, signal)}, "target": target}
        metrics.append({"type": "External", "external": external})
    percent = cpu_percent(plan.config, role)
    if percent is not None:
        utilization = {"type": "Utilization", "averageUtilization": percent}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": utilization}})
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": plan.names.metadata(deployment, deployment, annotations=UNAWAITED),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "minReplicas": scaling.min,
            "maxReplicas": scaling.max,
            "behavior": _behavior(scaling.pace),
            "metrics": metrics,
        },
    }


def _behavior(pace: Pace) -> dict[str, Any]:
    def policy(pods: int, window: int) -> dict[str, Any]:
        policies = [{"type": "Pods", "value": pods, "periodSeconds": pace.step_seconds}]
        return {"stabilizationWindowSeconds": window, "selectPolicy": "Max", "policies": policies}

    return {
        "scaleUp": policy(pace.up_pods, pace.up_window_seconds),
        "scaleDown": policy(pace.down_pods, pace.down_window_seconds),
    }


def metric_name(plan: Plan, role: Scaled, signal: Signal) -> str:
    """An external metric's name; the namespace is part of it, since an adapter has one list for the whole cluster."""
    return f"{re.sub('[^a-z0-9]', '_', plan.names.namespace)}_{role}_{signal.name}"


def _rules(plan: Plan) -> MANIFEST:
    """What the adapter needs to know: prometheus-adapter's `externalRules`, in JSON, which is YAML."""
    rules = []
    for role in plan.config.autoscaling.scaled:
        for signal in signals(plan.config, plan.names.namespace, role):
            # Where there is this series, the adapter offers the metric; its query is whole as it is.
            series = f'diphase_gateway_inflight_requests{{namespace="{plan.names.namespace}"}}'
            rules.append(
                {
                    "seriesQuery": series,
                    "name": {"as": metric_name(plan, role, signal)},
                    "resources": {"namespaced": False},
                    "metricsQuery": signal.query,
                }
            )
    content = {"rules.yaml": json.dumps({"externalRules": rules}, indent=1)}
    metadata = plan.names.metadata(RULES)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": content}


def _quantity(value: float) -> str:
    """As Kubernetes has it, in thousandths where it is not whole: 700m."""
    return str(round(value)) if value == round(value) else f"{round(value * 1000)}m"
