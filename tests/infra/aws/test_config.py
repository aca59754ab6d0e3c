"""The groups of the aws target: what is right is typed, what is wrong is named with its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import ConfigError, StackConfig

CLOUDFRONT = {"certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/abc"}
HOST = {"host": "api.example.com", "zoneId": "Z0123456789ABC"}


def parse(group: str, values: dict[str, Any]) -> Any:
    return getattr(StackConfig.parse({"target": "local", group: values}), group)


def faults(group: str, values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(group, values)
    return caught.value.faults


@pytest.mark.parametrize(
    ("group", "values", "says"),
    [
        ("storage", {"prefix": "Big"}, ["diphase:storage.prefix is 'Big'"]),
        ("storage", {"prefix": "a--b"}, ["diphase:storage: prefix is 'a--b'", "leave out the double hyphen"]),
        ("storage", {"prefix": "xn-a"}, ["S3 refuses names that begin so"]),
        ("storage", {"prefix": "p" * 51}, ["diphase:storage.prefix"]),
        ("storage", {"kmsDeletionDays": 3}, ["storage.kmsDeletionDays is 3", "greater than or equal to 7"]),
        ("storage", {"lustre": {"capacityGib": 3000}}, ["storage.lustre: capacityGib is 3000", "take 2400"]),
        ("storage", {"lustre": {"throughput": 300}}, ["storage.lustre.throughput is 300", "125, 250, 500 or 1000"]),
        ("storage", {"valkey": {"nodeType": "r7g.large"}}, ["storage.valkey.nodeType is 'r7g.large'"]),
        ("storage", {"valkey": {"engineVersion": "6.2"}}, ["storage.valkey.engineVersion is '6.2'"]),
        ("storage", {"valky": {}}, ["storage.valky is unknown; did you mean valkey?"]),
        ("registry", {"replicateTo": ["Ireland"]}, ["registry.replicateTo.0 is 'Ireland'"]),
        (
            "registry",
            {"replicateTo": ["eu-west-1"], "accountSettings": False},
            ["replicateTo needs accountSettings true"],
        ),
        ("registry", {"replicateTo": ["eu-west-1", "eu-west-1"]}, ["replicateTo lists something twice"]),
        ("registry", {"pullThrough": ["docker"]}, ["registry.pullThrough.0 is 'docker'", "'quay'"]),
        ("registry", {"keepImages": 1}, ["registry.keepImages is 1"]),
        ("edge", {"routing": "failover"}, ["diphase:edge: routing failover and failover", "set both"]),
        ("edge", {"failover": "primary"}, ["need each other"]),
        ("edge", {"host": "api.example.com"}, ["host and zoneId need each other"]),
        ("edge", {"zoneId": "example.com"}, ["edge.zoneId is 'example.com'"]),
        ("edge", {"idleSeconds": 5000}, ["edge.idleSeconds is 5000", "less than or equal to 4000"]),
        ("edge", {"tls": "ELBSecurityPolicy-2016-08"}, ["edge.tls is 'ELBSecurityPolicy-2016-08'"]),
        ("edge", {"allowedCidrs": []}, ["edge.allowedCidrs"]),
        ("edge", {"waf": {"requestsPerFiveMinutes": 1}}, ["edge.waf.requestsPerFiveMinutes is 1"]),
        ("edge", {"cloudfront": {}}, ["edge.cloudfront.certificateArn is missing"]),
        ("edge", {"cloudfront": CLOUDFRONT, "scheme": "internal"}, ["cloudfront needs scheme internet-facing"]),
        ("edge", {**HOST, "cloudfront": CLOUDFRONT, "routing": "latency"}, ["cloudfront and routing latency exclude"]),
        ("edge", {"cloudfront": CLOUDFRONT}, ["cloudfront needs host and zoneId"]),
        (
            "edge",
            {**HOST, "routing": "latency", "allowedCidrs": ["10.0.0.0/8"]},
            ["routing latency needs", "0.0.0.0/0"],
        ),
        ("edge", {**HOST, "regionHost": "api.example.com"}, ["regionHost is host"]),
        ("monitoring", {"logDays": 42}, ["monitoring.logDays is 42"]),
        ("monitoring", {"logDays": 0}, ["monitoring.logDays is 0"]),
        ("monitoring", {"emails": ["oncall"]}, ["monitoring.emails.0: 'oncall' is no address"]),
        ("monitoring", {"budget": {"usd": 100.0}}, ["budget needs emails"]),
        (
            "monitoring",
            {"emails": ["a@b.example"], "budget": {"usd": 1.0, "actualPercent": [5, 5]}},
            ["actualPercent is [5, 5]", "each once"],
        ),
        ("monitoring", {"grafanaAdmins": ["u"]}, ["grafanaAdmins is for kind managed, not cluster"]),
        ("charts", {"keda": {"version": "latest"}}, ["charts.keda.version is 'latest'"]),
        ("charts", {"keda": {"version": "2.17.2", "digest": "abc"}}, ["charts.keda.digest is 'abc'"]),
        ("charts", {"gpu": "operator", "devicePlugin": {"version": "0.19.3"}}, ["devicePlugin is set but gpu is"]),
        ("charts", {"gpuOperator": {"version": "v26.3.3"}}, ["gpuOperator is set but gpu is devicePlugin"]),
        ("charts", {"externalDnsChart": {"version": "1.21.1"}}, ["externalDns is false"]),
        ("charts", {"mirror": "https://example.com"}, ["charts.mirror is 'https://example.com'"]),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(group: str, values: dict[str, Any], says: list[str]) -> None:
    found = faults(group, values)
    assert len(found) == 1
    for part in says:
        assert part in found[0]


@pytest.mark.parametrize(
    ("group", "values", "key", "expected"),
    [
        ("storage", {"lustre": {"capacityGib": 4800}}, "lustre.capacity_gib", 4800),
        ("storage", {"prefix": "p" * 50}, "prefix", "p" * 50),
        ("registry", {"replicateTo": ["ap-northeast-1", "us-gov-west-1"]}, "account_settings", True),
        ("edge", {**HOST, "routing": "failover", "failover": "secondary"}, "failover", "secondary"),
        ("edge", {**HOST, "cloudfront": CLOUDFRONT}, "cloudfront.price_class", "PriceClass_100"),
        ("edge", {"waf": None}, "waf", None),
        ("monitoring", {"emails": ["a@b.example"], "budget": {"usd": 9.5}}, "budget.actual_percent", [50, 80, 100]),
        ("charts", {"gpu": "operator", "gpuOperator": {"version": "v26.3.3"}}, "gpu_operator.version", "v26.3.3"),
    ],
)
def test_what_is_right_is_taken(group: str, values: dict[str, Any], key: str, expected: object) -> None:
    found = parse(group, values)
    for part in key.split("."):
        found = getattr(found, part)
    assert found == expected


def test_only_what_ends_is_kept() -> None:
    """No log is kept for ever, and what holds data is protected unless somebody says otherwise."""
    config = StackConfig.parse({"target": "local"})
    assert config.monitoring.log_days == 90
    assert config.storage.protect
    assert config.edge.waf is not None
