"""What Kubernetes' HPA controller makes of an autoscaler's spec: its documented algorithm, so that days take seconds.

tests/kubernetes/test_autoscaling.py asks the real one.
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SYNC_SECONDS = 15
TOLERANCE = 0.1


@dataclass
class Controller:
    """One autoscaler: its spec, what it has recommended, and what it has done, each with its time in seconds."""

    spec: Mapping[str, Any]
    recommended: list[tuple[float, int]] = field(default_factory=list)
    done: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, replicas: int, ready: int, values: Mapping[str, float]) -> int:
        """The new number of replicas; `values` are external metrics by their names, absent ones are ignored."""
        wanted = max(self._wanted(metric, replicas, ready, values) for metric in self.spec["metrics"])
        self.recommended.append((now, wanted))
        behavior = self.spec["behavior"]
        up = min(n for at, n in self.recommended if at >= now - behavior["scaleUp"]["stabilizationWindowSeconds"])
        down = max(n for at, n in self.recommended if at >= now - behavior["scaleDown"]["stabilizationWindowSeconds"])
        stable = min(max(replicas, up), down) if up <= down else replicas
        bounded = min(max(stable, self.spec["minReplicas"]), self.spec["maxReplicas"])
        result = self._paced(now, replicas, bounded)
        if result != replicas:
            self.done.append((now, result - replicas))
        return result

    def _wanted(self, metric: Mapping[str, Any], replicas: int, ready: int, values: Mapping[str, float]) -> int:
        external = metric.get("external")
        if external is None or external["metric"]["name"] not in values:
            return 0
        value, target = values[external["metric"]["name"]], external["target"]
        if target["type"] == "AverageValue":
            each = _number(target["averageValue"])
            return replicas if abs(value / (each * replicas) - 1) <= TOLERANCE else math.ceil(value / each)
        ratio = value / _number(target["value"])
        return replicas if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * ready)

    def _paced(self, now: float, replicas: int, wanted: int) -> int:
        direction = "scaleUp" if wanted > replicas else "scaleDown"
        (policy,) = self.spec["behavior"][direction]["policies"]
        lately = [change for at, change in self.done if at > now - policy["periodSeconds"]]
        if wanted > replicas:
            began = replicas - sum(change for change in lately if change > 0)
            return max(replicas, min(wanted, began + policy["value"]))
        began = replicas - sum(change for change in lately if change < 0)
        return min(replicas, max(wanted, began - policy["value"]))


def _number(quantity: str) -> float:
    return int(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)
