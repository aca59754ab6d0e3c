"""The network of a region, as it would be made: subnets, ways out, endpoints, logs, and what waits for what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.aws.network import Network, NetworkArgs
from infra.aws.permissions.statement import Place
from infra.config import StackConfig
from tests.infra.aws.recorder import ACCOUNT, REGION, Graph, record
from tests.infra.aws.terraform import Provider

CLUSTER, KEY = "diphase-test", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"


def zones(number: int) -> list[str]:
    return [f"{REGION}{letter}" for letter in "abcd"[:number]]


def declared(provider: Provider, number: int = 3, lustre: bool = False, **network: Any) -> Graph:
    config = StackConfig.parse({"target": "local", "network": {"zones": zones(number), **network}}).network
    args = NetworkArgs(config, Place("aws", REGION, ACCOUNT), CLUSTER, KEY, 90, lustre)
    return record(provider, lambda: Network("region", args))


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider)


@pytest.mark.parametrize("number", [2, 3, 4])
@pytest.mark.parametrize("nat", ["zone", "one", "none"])
def test_the_provider_takes_it(provider: Provider, number: int, nat: str) -> None:
    assert list(declared(provider, number, nat=nat).faults(provider)) == []


@pytest.mark.parametrize(
    "network",
    [
        {"endpoints": [], "flowLogs": "none"},
        {"endpoints": ["kms", "sqs", "ssm", "monitoring", "secretsmanager", "autoscaling", "elasticloadbalancing"]},
        {"flowLogs": "all", "lustre": True, "nat": "none"},
    ],
)
def test_the_provider_takes_what_is_rarer(provider: Provider, network: dict[str, Any]) -> None:
    assert list(declared(provider, **network).faults(provider)) == []


def test_no_subnet_gives_out_public_addresses(graph: Graph) -> None:
    found = graph.of("Subnet")
    assert len(found) == 12
    assert not any(one.inputs["mapPublicIpOnLaunch"] for one in found)


def test_controllers_find_the_subnets_that_are_theirs_and_no_others(graph: Graph) -> None:
    tags = {one.name: {key for key in one.inputs["tags"] if key != "Name"} for one in graph.of("Subnet")}
    assert tags["region-public-a"] == {"kubernetes.io/role/elb"}
    assert tags["region-private-a"] == {"kubernetes.io/role/internal-elb", "karpenter.sh/discovery"}
    assert tags["region-cluster-a"] == tags["region-pods-a"] == set()
    assert graph.one("Subnet", "private-b").inputs["tags"]["karpenter.sh/discovery"] == CLUSTER


def test_pods_have_a_block_of_their_own_and_keep_half_of_it_for_prefixes(graph: Graph) -> None:
    second = graph.one("VpcIpv4CidrBlockAssociation")
    assert second.inputs["cidrBlock"] == "100.64.0.0/16"
    for letter in "abc":
        assert second.urn in graph.one("Subnet", f"pods-{letter}").dependencies
        kept = graph.one("SubnetCidrReservation", f"pods-{letter}").inputs
        assert kept["reservationType"] == "prefix"
    assert graph.one("SubnetCidrReservation", "pods-a").inputs["cidrBlock"] == "100.64.32.0/19"


@pytest.mark.parametrize(
    ("nat", "leads"),
    [
        ("zone", {"a": "nat-a", "b": "nat-b", "c": "nat-c"}),
        ("one", {"a": "nat-a", "b": "nat-a", "c": "nat-a"}),
        ("none", {}),
    ],
)
def test_a_zone_goes_out_by_its_own_nat_or_by_the_only_one(provider: Provider, nat: str, leads: dict[str, str]) -> None:
    graph = declared(provider, nat=nat)
    routes = {one.name[-1]: one.inputs["natGatewayId"] for one in graph.of("Route") if "private" in one.name}
    assert {zone: way.removeprefix("region-ways-").removesuffix("-id") for zone, way in routes.items()} == leads
    assert len(graph.of("NatGateway")) == len(graph.of("Eip")) == len(set(leads.values()))


def test_the_control_planes_subnets_lead_nowhere(graph: Graph) -> None:
    tables = {
        one.name.removeprefix("region-ways-"): one.inputs["routeTableId"] for one in graph.of("RouteTableAssociation")
    }
    assert len(tables) == 12
    routed = {one.inputs["routeTableId"] for one in graph.of("Route")}
    assert tables["cluster-a"] not in routed
    assert tables["private-a"] == tables["pods-a"] != tables["private-b"]


def test_a_nat_comes_after_the_internet_and_goes_before_it(graph: Graph) -> None:
    for kind in ("Eip", "NatGateway"):
        waits = graph.one(kind, "nat-a").dependencies
        assert graph.one("InternetGateway").urn in waits
        assert graph.one("Route", "public").urn in waits


def test_services_are_reached_inside_by_this_accounts_credentials_only(graph: Graph) -> None:
    services = {one.inputs["serviceName"]: one.inputs for one in graph.of("VpcEndpoint")}
    assert {name.removeprefix(f"com.amazonaws.{REGION}.") for name in services} == {
        "s3",
        *("ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "sts"),
    }
    for name, inputs in services.items():
        ours, *more = json.loads(inputs["policy"])["Statement"]
        assert ours["Condition"] == {"StringEquals": {"aws:PrincipalAccount": ACCOUNT}}
        # Layers of images lie in buckets of others; without this no image of ECR or registry.k8s.io comes in.
        assert [one["Action"] for one in more] == ([["s3:GetObject"]] if name.endswith(".s3") else [])


def test_s3_is_reached_from_every_zone_without_a_nat(graph: Graph) -> None:
    tables = graph.one("VpcEndpoint", "s3").inputs["routeTableIds"]
    assert sorted(tables) == [f"region-ways-private-{letter}-id" for letter in "abc"]


def test_interfaces_lie_in_every_zone_under_the_services_own_names(graph: Graph) -> None:
    found = graph.one("VpcEndpoint", "ecr-api").inputs
    assert len(found["subnetIds"]) == 3
    assert found["privateDnsEnabled"] is True
    assert found["securityGroupIds"] == ["region-groups-endpoints-id"]


@pytest.mark.parametrize(("wanted", "traffic"), [("reject", "REJECT"), ("all", "ALL")])
def test_flow_logs_end_and_are_encrypted(provider: Provider, wanted: str, traffic: str) -> None:
    graph = declared(provider, flowLogs=wanted)
    assert graph.one("FlowLog").inputs["trafficType"] == traffic
    logs = graph.one("LogGroup").inputs
    assert logs["retentionInDays"] == 90
    assert logs["kmsKeyId"] == KEY
    trust = json.loads(graph.one("Role").inputs["assumeRolePolicy"])["Statement"][0]
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


def test_without_flow_logs_nobody_may_write_any(provider: Provider) -> None:
    graph = declared(provider, flowLogs="none")
    assert graph.of("FlowLog") == graph.of("LogGroup") == graph.of("Role") == []
