"""Where clients come in: what is open, who is refused, which name leads where."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pulumi
import pytest

from infra.aws.edge import Edge, EdgeArgs
from infra.config import StackConfig
from tests.infra.aws.recorder import REGION, Graph, Recorded, record
from tests.infra.aws.terraform import Provider

KEY = "arn:aws:kms:us-east-1:123456789012:key/k"
HOST: dict[str, object] = {"host": "api.example.com", "zoneId": "Z0123456789ABC"}
BALANCER = "k8s-edge-1.us-east-1.elb.amazonaws.com"
OPTION = {"resourceRecordName": "_a", "resourceRecordType": "CNAME", "resourceRecordValue": "_b"}
OUTPUTS: dict[str, dict[str, Any]] = {
    "ingress/edge-gateway": {"status": {"loadBalancer": {"ingress": [{"hostname": BALANCER}]}}},
    "edge-certificate": {
        "domainValidationOptions": [
            {"domainName": name, **OPTION} for name in ("us-east-1.api.example.com", "api.example.com", "r.example.com")
        ]
    },
}
CLOUDFRONT = {"certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/abc"}
FAILOVER = {"routing": "failover", "failover": "secondary"}
PREFIX = "alb.ingress.kubernetes.io/"


def declared(provider: Provider, **edge: object) -> Graph:
    config = StackConfig.parse({"target": "local", "edge": {**HOST, **edge}}).edge

    def program() -> None:
        cluster = pulumi.ProviderResource("kubernetes", "cluster", {})
        controller = pulumi.CustomResource("test:index:Controller", "controller", {})
        Edge("edge", EdgeArgs(config, REGION, "diphase", KEY, "logs", cluster, [controller]))

    return record(provider, program, OUTPUTS)


def ingress(graph: Graph) -> Recorded:
    return graph.one("Ingress")


def annotations(graph: Graph) -> dict[str, str]:
    found = ingress(graph).inputs["metadata"]["annotations"]
    return {name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)}


@pytest.mark.parametrize(
    "edge",
    [
        {},
        {"waf": None, "scheme": "internal", "allowedCidrs": ["10.0.0.0/8", "192.168.0.0/16"]},
        {"routing": "latency", "regionHost": "r.example.com"},
        FAILOVER,
        {"cloudfront": CLOUDFRONT, "waf": {"managedRules": False}},
    ],
)
def test_the_provider_takes_it(provider: Provider, edge: dict[str, object]) -> None:
    graph = declared(provider, **edge)
    assert list(graph.faults(provider)) == []
    kubernetes_validate.validate(ingress(graph).inputs, "1.33", strict=True)


def test_only_443_is_open_and_only_what_clients_need(provider: Provider) -> None:
    graph = declared(provider, allowedCidrs=["203.0.113.0/24"])
    found = annotations(graph)
    assert found["listen-ports"] == '[{"HTTPS": 443}]'
    assert found["inbound-cidrs"] == "203.0.113.0/24"
    assert found["backend-protocol"] == "HTTPS"
    assert found["ssl-policy"].startswith("ELBSecurityPolicy-TLS13")
    paths = ingress(graph).inputs["spec"]["rules"][0]["http"]["paths"]
    assert {one["path"] for one in paths} == {"/v1", "/health", "/ready"}


def test_case_39_a_silent_stream_lives_and_a_pod_that_ends_drains(provider: Provider) -> None:
    found = annotations(declared(provider, idleSeconds=1200, drainSeconds=300))
    assert "idle_timeout.timeout_seconds=1200" in found["load-balancer-attributes"].split(",")
    assert "deregistration_delay.timeout_seconds=300" in found["target-group-attributes"].split(",")
    assert found["target-type"] == "ip"  # only then do readiness gates hold a rollout
    assert "access_logs.s3.bucket=logs" in found["load-balancer-attributes"].split(",")


def test_the_balancer_waits_for_its_controller_and_for_a_valid_certificate(provider: Provider) -> None:
    graph = declared(provider)
    waits = ingress(graph).dependencies
    assert graph.one("Controller").urn in waits
    assert graph.one("CertificateValidation").urn in waits
    assert annotations(graph)["certificate-arn"] == graph.one("CertificateValidation").inputs["certificateArn"]


def test_each_name_of_the_certificate_is_validated(provider: Provider) -> None:
    graph = declared(provider)
    certificate = graph.one("acm/certificate:Certificate").inputs
    assert certificate["domainName"] == "api.example.com"
    assert certificate["subjectAlternativeNames"] == ["us-east-1.api.example.com"]
    assert len([one for one in graph.of("Record") if one.inputs["type"] == "CNAME"]) == 2


def record_of(graph: Graph, host: str) -> dict[str, Any]:
    return next(one.inputs for one in graph.of("Record") if one.inputs["name"] == host and one.inputs["type"] == "A")


def test_one_region_has_both_names(provider: Provider) -> None:
    graph = declared(provider)
    for host in ("api.example.com", "us-east-1.api.example.com"):
        assert record_of(graph, host)["aliases"][0]["name"] == BALANCER
    assert graph.of("HealthCheck") == []


def test_of_several_regions_clients_get_the_nearest_that_is_healthy(provider: Provider) -> None:
    graph = declared(provider, routing="latency", healthSeconds=10)
    record = record_of(graph, "api.example.com")
    assert record["latencyRoutingPolicies"] == [{"region": REGION}]
    assert record["setIdentifier"] == REGION
    check = graph.one("HealthCheck").inputs
    assert record["healthCheckId"] == "edge-dns-health-id"
    assert (check["fqdn"], check["resourcePath"], check["requestInterval"]) == (
        "us-east-1.api.example.com",
        "/ready",
        10,
    )
    # The region's own name is never routed elsewhere, or its health would be another's.
    assert "latencyRoutingPolicies" not in record_of(graph, "us-east-1.api.example.com")


def test_the_secondary_region_is_the_secondary(provider: Provider) -> None:
    record = record_of(declared(provider, **FAILOVER), "api.example.com")
    assert record["failoverRoutingPolicies"] == [{"type": "SECONDARY"}]


def test_an_address_that_asks_too_often_is_told_to_wait(provider: Provider) -> None:
    graph = declared(provider, waf={"requestsPerFiveMinutes": 500})
    rate, *managed = graph.one("WebAcl").inputs["rules"]
    limit = rate["statement"]["rateBasedStatement"]
    assert (limit["limit"], limit["evaluationWindowSec"], limit["aggregateKeyType"]) == (500, 300, "IP")
    assert rate["action"]["block"]["customResponse"]["responseCode"] == 429
    assert len(managed) == 2
    assert annotations(graph)["wafv2-acl-arn"].startswith("arn:aws:wafv2:")


def test_no_key_of_a_client_is_logged(provider: Provider) -> None:
    graph = declared(provider)
    acl = graph.one("WebAcl").inputs
    seen = [acl["visibilityConfig"], *(rule["visibilityConfig"] for rule in acl["rules"])]
    assert not any(one["sampledRequestsEnabled"] for one in seen)
    assert graph.one("WebAclLoggingConfiguration").inputs["redactedFields"] == [
        {"singleHeader": {"name": "authorization"}}
    ]
    assert graph.one("LogGroup").inputs["retentionInDays"] == 30


def test_behind_cloudfront_the_header_says_who_asks_and_nothing_is_cached(provider: Provider) -> None:
    graph = declared(provider, cloudfront=CLOUDFRONT)
    limit = graph.one("WebAcl").inputs["rules"][0]["statement"]["rateBasedStatement"]
    assert limit["aggregateKeyType"] == "FORWARDED_IP"
    assert limit["forwardedIpConfig"]["headerName"] == "X-Forwarded-For"
    distribution = graph.one("Distribution").inputs
    assert distribution["defaultCacheBehavior"]["cachePolicyId"] == "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
    assert distribution["defaultCacheBehavior"]["viewerProtocolPolicy"] == "https-only"
    assert record_of(graph, "api.example.com")["aliases"][0]["name"] != BALANCER
    assert record_of(graph, "us-east-1.api.example.com")["aliases"][0]["name"] == BALANCER
