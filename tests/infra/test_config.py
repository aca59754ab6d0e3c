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
    assert config.threads >= 1


def test_it_is_frozen() -> None:
    config = StackConfig.parse({"target": "local"})
    with pytest.raises(ValidationError):
        config.decode.replicas = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, ["diphase:target is missing", "pulumi config set diphase:target"]),
        ({"target": "aws"}, ["aws is not in this version", "local"]),
        ({"target": "kubernetes"}, ["kubernetes is not in this version"]),
        ({"target": "moon"}, ["diphase:target", "'moon'", "'local'"]),
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
            ["diphase: prefill.maxBatchTokens (64) must exceed engine.maxRunning (64)"],
        ),
        ({"target": "local", "local": {"basePort": 65500}}, ["local.basePort is 65500", "less than or equal to 65475"]),
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
