"""The configuration: what is right is typed, what is wrong is named with its remedy."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from infra.config import ConfigError, StackConfig


def faults(values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        StackConfig.parse(values)
    return caught.value.faults


def test_a_stack_needs_its_target_only() -> None:
    config = StackConfig.parse({"target": "local"})
    assert config.scheduler.replicas == 2


def test_it_is_frozen() -> None:
    config = StackConfig.parse({"target": "local"})
    with pytest.raises(ValidationError):
        config.decode.replicas = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, ["diphase:target is missing", "pulumi config set diphase:target"]),
        ({"target": "moon"}, ["diphase:target", "'moon'", "'local', 'kubernetes' or 'aws'"]),
        ({"target": "local", "decod": {}}, ["diphase:decod is unknown", "did you mean decode?"]),
        ({"target": "local", "decode": {"max_tokens": 1}}, ["diphase:decode.max_tokens is unknown", "maxTokens?"]),
        ({"target": "local", "decode": {"zzz": 1}}, ["known here: replicas, maxTokens, idleWaitMs"]),
        ({"target": "local", "decode": 5}, ["diphase:decode must be a group of keys", "maxTokens", "not 5"]),
        (
            {"target": "local", "decode": {"replicas": 0}},
            ["diphase:decode.replicas is 0", "greater than or equal to 1"],
        ),
        ({"target": "local", "decode": {"replicas": "2"}}, ["decode.replicas is '2'", "valid integer"]),
        ({"target": "local", "decode": {"replicas": True}}, ["decode.replicas is True", "valid integer"]),
        ({"target": "local", "scheduler": {"replicas": 1}}, ["scheduler.replicas is 1", "greater than or equal to 2"]),
        ({"target": "local", "model": {"dtype": "float8"}}, ["model.dtype is 'float8'", "'float32' or 'bfloat16'"]),
        ({"target": "local", "kv": {"leaseSeconds": 9, "ttlSeconds": 3}}, ["leaseSeconds (9) must not exceed"]),
        (
            {"target": "local", "prefill": {"maxBatchTokens": 64}, "engine": {"maxRunning": 64}},
            ["diphase:prefill.maxBatchTokens (64) must exceed engine.maxRunning (64)"],
        ),
        ({"target": "local", "local": {"basePort": 65500}}, ["local.basePort is 65500", "less than or equal to 65475"]),
        ({"target": "local", "gateway": {"replicas": 2}}, ["gateway.replicas is 2", "runs one gateway"]),
        (
            {"target": "local", "autoscaling": {"decode": {"max": 3}}},
            ["diphase:autoscaling.decode is for the kubernetes target", "set replicas"],
        ),
        ({"target": "local", "gateway": {"port": None}, "local": None}, ["diphase:local must be a group"]),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(values: dict[str, Any], says: list[str]) -> None:
    found = faults(values)
    assert len(found) == 1
    for part in says:
        assert part in found[0]


def test_every_fault_is_named_at_once() -> None:
    values = {"target": "local", "decode": {"replicas": 0, "oops": 1}, "kv": {"poolMib": 0}, "extra": 1}
    assert len(faults(values)) == 4


CLUSTER: dict[str, Any] = {
    "target": "kubernetes",
    "model": {"name": "m", "revision": "r"},
    "images": {
        "digests": {role: f"example.com/{role}@sha256:{'0' * 64}" for role in ("gateway", "scheduler", "worker", "kv")}
    },
    "kubernetes": {"context": "c", "modelVolume": {"claim": "model"}},
}


def test_what_a_cluster_needs_is_asked_for_at_once() -> None:
    assert StackConfig.parse(CLUSTER).kubernetes.entry.kind == "service"
    said = "\n".join(faults({"target": "kubernetes"}))
    for key in ("kubernetes.context", "model.name", "model.revision", "kubernetes.modelVolume", "images.digests.kv"):
        assert f"diphase:{key}" in said


@pytest.mark.parametrize(
    ("group", "values", "says"),
    [
        ("kubernetes", {"entry": {"kind": "ingress"}}, "kubernetes.entry: kind ingress needs host"),
        ("kubernetes", {"entry": {"kind": "gatewayApi", "host": "a.b"}}, "needs className"),
        ("kubernetes", {"entry": {"issuer": "i", "tlsSecret": "s", "host": "a.b"}}, "exclude each other"),
        ("kubernetes", {"entry": {"issuer": "i"}}, "issuer needs host"),
        ("kubernetes", {"entry": {"nodePort": 30000}}, "nodePort is only for"),
        ("kubernetes", {"modelVolume": {"claim": "a", "hostPath": "/b"}}, "exclude each other"),
        ("kubernetes", {"modelVolume": {}}, "modelVolume needs claim, hostPath or fetch"),
        ("kubernetes", {"namespace": "Upper"}, "kubernetes.namespace is 'Upper'"),
        ("kubernetes", {"prefill": {"memory": "1Gi"}}, "kubernetes.prefill.memory (1Gi) must hold kv.poolMib (1024)"),
        ("kubernetes", {"decode": {"memory": "lots"}}, "kubernetes.decode.memory is 'lots'"),
        ("kubernetes", {"decode": {"gpus": 8}}, "kubernetes.decode.gpus is unknown; did you mean gpu?"),
        (
            "kubernetes",
            {"decode": {"tolerations": [{"kei": "gpu"}]}},
            "tolerations.0.kei is unknown; did you mean key?",
        ),
        ("images", {"digests": {"kv": "example.com/kv:latest"}}, "images.digests.kv is 'example.com/kv:latest'"),
        ("kv", {"transport": "shm"}, "kv.transport is shm; pods share no memory"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_named(group: str, values: dict[str, Any], says: str) -> None:
    found = faults({**CLUSTER, group: {**CLUSTER.get(group, {}), **values}})
    assert any(says in fault for fault in found)


NIGHT = {"start": "0 22 * * *", "end": "0 6 * * *"}
SCALING = {"prometheusUrl": "http://prometheus:9090", "decode": {"max": 4}}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"decode": {}}, "autoscaling.decode.max is missing"),
        ({"decode": {"max": 4, "min": 5}}, "autoscaling.decode: min (5) must not exceed max (4)"),
        ({"decode": {"max": 4, "kvUsage": 80}}, "autoscaling.decode.kvUsage is 80"),
        ({"decode": {"max": 4, "kvuse": 0.5}}, "autoscaling.decode.kvuse is unknown; did you mean kvUsage?"),
        ({"decode": {"max": 4, "min": 2}}, "decode.replicas (1), the number to begin with, must lie between"),
        ({"decode": {"max": 4, "offPeak": NIGHT}}, "offPeak.min (1) must be below min (1)"),
        ({"decode": {"max": 4, "offPeak": {**NIGHT, "end": "6:00"}}}, "offPeak.end: '6:00' is no time as cron has it"),
        ({"decode": {"max": 4, "offPeak": {**NIGHT, "end": NIGHT["start"]}}}, "start and end are both"),
        ({"decode": {"max": 4, "offPeak": {**NIGHT, "timezone": "Mars"}}}, "timezone 'Mars' is unknown"),
        ({"scheduler": {"max": 1}}, "autoscaling.scheduler.max is 1"),
        ({"prometheusUrl": None}, "autoscaling.prometheusUrl is missing"),
        ({"prometheusUrl": "prometheus:9090"}, "autoscaling.prometheusUrl is 'prometheus:9090'"),
        ({"kind": "hpa", "decode": {"max": 4, "min": 2, "offPeak": NIGHT}}, "offPeak needs autoscaling.kind keda"),
    ],
)
def test_what_is_wrong_with_autoscaling_is_named(values: dict[str, Any], says: str) -> None:
    kubernetes = {**CLUSTER["kubernetes"], "monitoringNamespace": "monitoring"}
    assert StackConfig.parse({**CLUSTER, "kubernetes": kubernetes, "autoscaling": SCALING}).autoscaling.scaled
    found = faults({**CLUSTER, "kubernetes": kubernetes, "autoscaling": {**SCALING, **values}})
    assert any(says in fault for fault in found), found


def test_what_autoscaling_needs_of_the_cluster_is_asked_for() -> None:
    kubernetes = {**CLUSTER["kubernetes"], "autoscaled": ["decode"]}
    found = faults({**CLUSTER, "kubernetes": kubernetes, "autoscaling": SCALING})
    assert len(found) == 2
    assert "kubernetes.autoscaled lists decode, which autoscaling.decode scales" in found[0]
    assert "kubernetes.monitoringNamespace is missing" in found[1]
