"""A stack scaled by the real HPA controller on what the real Prometheus and metrics-server say, through a day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from infra.kubernetes.signals import DEPLOYMENTS
from tests.kubernetes.day import Outcome, day, live, seconds_of_an_answer
from tests.kubernetes.fleet import Fleet, turns
from tests.kubernetes.keda import defined
from tests.kubernetes.stack import ClusterStack, eventually
from tests.kubernetes.streams import streaming
from tests.toolchain.kubernetes.cluster import Cluster
from tests.toolchain.kubernetes.metrics import Metrics

DAY_SECONDS = 220.0
# Under way at noon, on a machine of any speed: the rate is this by the seconds of an answer (Little's law).
NOON_REQUESTS = 5.0
MOST_WORKERS = 2
WORKERS = ("prefill-worker", "decode-worker")
SETTLE_SECONDS = 180.0
# Two cores do all of it, so another pod is asked for long before the cores are busy; and minutes are seconds here.
PACE = {"stepSeconds": 10, "upWindowSeconds": 6, "downWindowSeconds": 30}
AUTOSCALING = {
    "kind": "hpa",
    "windowSeconds": 20,
    "prefill": {"max": MOST_WORKERS, "busy": 0.2, "ttftSeconds": 20.0, "pace": PACE},
    "decode": {"max": MOST_WORKERS, "requests": 2.2, "tpotSeconds": 10.0, "pace": PACE},
    "gateway": {"max": 2, "requests": 5.0, "cpuPercent": 900, "pace": PACE},
    "scheduler": {"max": 3, "cpuPercent": 900, "pace": PACE},
}


@pytest.fixture(scope="module")
def metrics(cluster: Cluster) -> Iterator[Metrics]:
    with Metrics.running(cluster) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def scaled(running: ClusterStack, metrics: Metrics) -> Iterator[None]:
    """The stack that all share, with autoscalers while this file's tests run."""
    running.configure(autoscaling=AUTOSCALING, kubernetes={"monitoringNamespace": "monitoring"})
    running.diphase("up")
    yield
    running.configure(autoscaling=dict.fromkeys(DEPLOYMENTS), kubernetes={"monitoringNamespace": None})
    running.diphase("up")


def autoscaler(stack: ClusterStack, role: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stack.kubectl("get", "hpa", role, "--output=json"))
    return found


def knows_all(stack: ClusterStack, role: str) -> bool:
    """Whether an autoscaler acts, and by every one of its metrics."""
    found = autoscaler(stack, role)
    status = found.get("status", {})
    known = [one for one in status.get("currentMetrics") or [] if one["type"] in ("External", "Resource")]
    active = any(one["type"] == "ScalingActive" and one["status"] == "True" for one in status.get("conditions", []))
    return active and len(known) == len(found["spec"]["metrics"])


def test_every_signal_reaches_its_autoscaler(stack: ClusterStack, expected: dict[str, str]) -> None:
    for role in DEPLOYMENTS.values():
        eventually(f"all metrics of {role}", partial(knows_all, stack, role), SETTLE_SECONDS)
    cpu = [
        one["resource"]["current"]
        for one in autoscaler(stack, "gateway")["status"]["currentMetrics"]
        if "resource" in one
    ]
    assert cpu[0]["averageUtilization"] >= 0, "of the real metrics-server"


def test_what_an_autoscaler_decides_is_no_change_of_the_stack(stack: ClusterStack) -> None:
    stack.kubectl("patch", "hpa", "scheduler", "--type=merge", "--patch", '{"spec": {"minReplicas": 3}}')
    eventually("three schedulers", lambda: len(stack.pods("scheduler")) == 3, SETTLE_SECONDS)
    stack.kubectl("patch", "hpa", "scheduler", "--type=merge", "--patch", '{"spec": {"minReplicas": 2}}')
    stack.diphase("preview", "--expect-no-changes")


def test_a_day(stack: ClusterStack, expected: dict[str, str], record_property: Callable[[str, object], None]) -> None:
    """Replicas follow the load up and down again, nobody loses an answer, and it takes less than a fixed fleet."""
    alone = seconds_of_an_answer(stack)
    arrivals = day(DAY_SECONDS, NOON_REQUESTS / alone)
    eventually("a worker of each phase", lambda: at_night(Fleet(stack)), SETTLE_SECONDS)
    # One client always has an answer under way, so that a pod which is taken has something to finish.
    with Fleet(stack).watched() as fleet, streaming(stack, expected, count=1) as seen:
        outcome = asyncio.run(live(stack, arrivals))
        eventually("the night's fleet", lambda: at_night(fleet), SETTLE_SECONDS)
    record_property("seconds of an answer alone", round(alone, 2))
    report(fleet, outcome, len(seen.outcomes), record_property)
    assert outcome.lost == []
    assert outcome.answered == len(arrivals)
    assert not seen.failed
    assert not seen.wrong
    for role in WORKERS:
        numbers = fleet.numbers(role)
        assert max(numbers) > 1, f"{role} did not follow: {numbers}"
        assert turns(numbers) == 1, f"{role} swings: {numbers}"
    assert fleet.pod_seconds(WORKERS) < 0.95 * fixed_fleet(fleet)


def at_night(fleet: Fleet) -> bool:
    found = fleet.look()
    return all(found[role] == 1 for role in WORKERS)


def fixed_fleet(fleet: Fleet) -> float:
    """Pod-seconds of workers, had there been all the time as many as at noon."""
    return fleet.seconds * sum(max(fleet.numbers(role)) for role in WORKERS)


def report(fleet: Fleet, outcome: Outcome, streams: int, record_property: Callable[[str, object], None]) -> None:
    """Figures for who wants them: `-s` shows them, and a JUnit file has them. No test depends on them."""
    first = sorted(outcome.seconds_to_first)
    figures = {
        "answered, and streams": [outcome.answered, streams],
        "lost": len(outcome.lost),
        "seconds": round(fleet.seconds),
        "worker-seconds, and of a fixed fleet": [round(fleet.pod_seconds(WORKERS)), round(fixed_fleet(fleet))],
        "TTFT p50, p90": [round(first[int(len(first) * share)], 2) for share in (0.5, 0.9)] if first else [],
        **{role: [f"{n} from {at:.0f} s on" for at, n in fleet.changes(role)] for role in DEPLOYMENTS.values()},
    }
    for name, value in figures.items():
        record_property(name, value)
        print(f"{name}: {value}")


def test_scaled_objects_instead(stack: ClusterStack, cluster: Cluster) -> None:
    """KEDA itself is not here, so nothing scales: what is shown is that they are made, kept and taken away again."""
    with defined(cluster):
        stack.configure(autoscaling={"kind": "keda", "prometheusUrl": "http://prometheus.monitoring.svc:9090"})
        stack.diphase("up")
        names = stack.kubectl("get", "scaledobjects", "--output=name").split()
        assert sorted(names) == sorted(f"scaledobject.keda.sh/{role}" for role in DEPLOYMENTS.values())
        assert stack.kubectl("get", "hpa", "--output=name") == ""
        stack.diphase("preview", "--expect-no-changes")
        stack.configure(autoscaling=dict.fromkeys(DEPLOYMENTS))
        stack.diphase("up")
        assert stack.kubectl("get", "scaledobjects", "--output=name") == ""
