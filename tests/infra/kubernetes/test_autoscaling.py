"""Scalers as they are declared: what they ask Prometheus, what they do with the answer, and how fast."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.config.autoscaling import Scaled
from infra.kubernetes.autoscaling import manifests, scaled_roles
from infra.kubernetes.objects import LAST
from infra.kubernetes.plan import Plan
from infra.kubernetes.signals import DEPLOYMENTS, Signal, signals
from tests.infra.kubernetes.stacks import SCALED, found, plan

NIGHT = {"start": "0 22 * * *", "end": "0 6 * * *", "timezone": "Asia/Shanghai", "min": 1}


def scaled(kind: str = "keda", **roles: dict[str, Any]) -> Plan:
    """A stack that scales these roles, which begin with the least; all four of them unless some are named."""
    given = roles or {role: SCALED["autoscaling"][role] for role in DEPLOYMENTS}
    replicas = {role: {"replicas": scaling["min"]} for role, scaling in given.items() if "min" in scaling}
    autoscaling = {"kind": kind, "prometheusUrl": SCALED["autoscaling"]["prometheusUrl"], **given}
    return plan(kubernetes=SCALED["kubernetes"], autoscaling=autoscaling, **replicas)


def triggers(made: Plan, role: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found(made, "ScaledObject", role)["spec"]["triggers"]}


def test_nothing_is_scaled_unless_it_is_asked_for() -> None:
    assert list(manifests(plan())) == []
    assert scaled_roles(plan().config) == []


@pytest.mark.parametrize("kind", ["ScaledObject", "HorizontalPodAutoscaler"])
def test_each_role_has_a_scaler_of_its_own_and_its_replicas_are_left_alone(kind: str) -> None:
    made = scaled("keda" if kind == "ScaledObject" else "hpa")
    for role in DEPLOYMENTS.values():
        target = found(made, kind, role)["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("Deployment", role)
        assert found(made, "Deployment", role)["spec"]["replicas"] >= 1
    assert sorted(scaled_roles(made.config)) == sorted(DEPLOYMENTS.values())
    assert kind in LAST, "a scaler is made after what it scales"


def test_keda_asks_prometheus_and_takes_no_answer_for_no_load() -> None:
    made = scaled()
    assert list(triggers(made, "prefill-worker")) == ["queued-tokens", "busy", "ttft"]
    assert list(triggers(made, "decode-worker")) == ["kv-usage", "requests", "tpot"]
    assert list(triggers(made, "gateway")) == ["requests", "cpu"]
    assert list(triggers(made, "scheduler")) == ["requests-per-second", "cpu"]
    for role in DEPLOYMENTS.values():
        for trigger in triggers(made, role).values():
            if trigger["type"] == "prometheus":
                assert trigger["metadata"]["ignoreNullValues"] == "false"
                assert trigger["metadata"]["serverAddress"] == "http://prometheus.monitoring.svc:9090"


def test_without_prometheus_no_worker_is_taken() -> None:
    made = scaled(decode={"max": 8, "min": 2})
    fallback = found(made, "ScaledObject", "decode-worker")["spec"]["fallback"]
    assert fallback == {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicasIfHigher"}
    assert "fallback" not in found(scaled(), "ScaledObject", "gateway")["spec"], "its CPU still counts"


def test_off_peak_hours_lower_the_floor_and_nothing_else() -> None:
    made = scaled(decode={"max": 8, "min": 3, "offPeak": NIGHT})
    spec = found(made, "ScaledObject", "decode-worker")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 8)
    assert triggers(made, "decode-worker")["peak"] == {
        "type": "cron",
        "name": "peak",
        "metadata": {"timezone": "Asia/Shanghai", "start": "0 6 * * *", "end": "0 22 * * *", "desiredReplicas": "3"},
    }


def test_targets_are_the_stacks_objectives_unless_they_are_given() -> None:
    promised = scaled()
    own = scaled(prefill={"max": 4, "ttftSeconds": 0.5}, decode={"max": 4, "tpotSeconds": 0.04, "requests": 3})
    unpromised = plan(objectives={"decodeTokensPerSecond": 0}, **SCALED)

    def targets(made: Plan, role: Scaled) -> dict[str, float]:
        return {signal.name: signal.target for signal in signals(made.config, "diphase-test", role)}

    assert targets(promised, "prefill")["ttft"] == 2
    assert targets(promised, "decode") == {"kv_usage": 0.8, "requests": 0.8 * 32, "tpot": 0.2}
    assert targets(own, "prefill")["ttft"] == 0.5
    assert targets(own, "decode") == {"kv_usage": 0.8, "requests": 3, "tpot": 0.04}
    assert targets(unpromised, "decode").keys() == {"kv_usage", "requests"}


def test_an_autoscaler_follows_the_metrics_that_the_rules_define() -> None:
    made = scaled("hpa")
    rules = json.loads(found(made, "ConfigMap", "autoscaling-rules")["data"]["rules.yaml"])["externalRules"]
    defined = {rule["name"]["as"]: rule["metricsQuery"] for rule in rules}
    used = {}
    for role in DEPLOYMENTS.values():
        for metric in found(made, "HorizontalPodAutoscaler", role)["spec"]["metrics"]:
            if metric["type"] == "External":
                used[metric["external"]["metric"]["name"]] = metric["external"]["target"]
    assert used.keys() == defined.keys()
    assert used["diphase_test_prefill_busy"] == {"type": "AverageValue", "averageValue": "700m"}
    assert used["diphase_test_prefill_ttft"] == {"type": "Value", "value": "2"}
    cpu = found(made, "HorizontalPodAutoscaler", "gateway")["spec"]["metrics"][-1]
    assert cpu["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}


@pytest.mark.parametrize("kind", ["keda", "hpa"])
def test_up_by_what_is_needed_and_down_by_the_most_that_was_needed_lately(kind: str) -> None:
    pace = {"upPods": 3, "downPods": 2, "stepSeconds": 90, "downWindowSeconds": 600}
    made = scaled(kind, prefill={"max": 9, "pace": pace})
    if kind == "keda":
        spec = found(made, "ScaledObject", "prefill-worker")["spec"]
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    else:
        behavior = found(made, "HorizontalPodAutoscaler", "prefill-worker")["spec"]["behavior"]
    up, down = behavior["scaleUp"], behavior["scaleDown"]
    assert up["policies"] == [{"type": "Pods", "value": 3, "periodSeconds": 90}]
    assert down["policies"] == [{"type": "Pods", "value": 2, "periodSeconds": 90}]
    assert (up["stabilizationWindowSeconds"], down["stabilizationWindowSeconds"]) == (30, 600)


def test_each_phase_follows_signals_of_its_own() -> None:
    config = scaled().config

    def of(role: Scaled) -> list[Signal]:
        return signals(config, "diphase-test", role)

    assert not {signal.query for signal in of("prefill")} & {signal.query for signal in of("decode")}
    for signal in (*of("prefill"), *of("decode"), *of("gateway"), *of("scheduler")):
        assert 'namespace="diphase-test"' in signal.query


def test_scaled_workers_roll_in_shares_for_nobody_knows_their_number() -> None:
    made = scaled(decode={"max": 8})
    for role in ("prefill-worker", "decode-worker"):
        assert found(made, "Deployment", role)["spec"]["strategy"]["rollingUpdate"] == {
            "maxSurge": "25%",
            "maxUnavailable": 0,
        }
