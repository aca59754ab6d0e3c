"""Who may open connections to whom: the recorded rules say what the edges say, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from infra.aws.security_groups import Edge, edges
from tests.infra.aws.recorder import Graph
from tests.infra.aws.terraform import Provider
from tests.infra.aws.test_network import CLUSTER, declared

Rule = tuple[str, str, str, int | None, int | None]


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider)


def rules(graph: Graph, way: str) -> Iterator[Rule]:
    """(source, target, protocol, first, last) of each rule of a direction."""
    for one in graph.of(f"SecurityGroup{way}Rule"):
        inputs = one.inputs
        own = group(inputs["securityGroupId"])
        other = group(inputs.get("referencedSecurityGroupId")) or {
            "0.0.0.0/0": "internet",
            "10.0.0.0/16": "network",
        }.get(inputs.get("cidrIpv4"), inputs.get("prefixListId", ""))
        source, target = (other, own) if way == "Ingress" else (own, other)
        first, last = (None if (port := inputs.get(key)) is None else int(port) for key in ("fromPort", "toPort"))
        yield source, target, inputs["ipProtocol"], first, last


def group(identity: str | None) -> str:
    return (identity or "").removeprefix("region-groups-").removesuffix("-id")


def told(several: tuple[Edge, ...]) -> set[Rule]:
    return {edge[:5] for edge in several}


@pytest.mark.parametrize("lustre", [False, True])
def test_both_ends_of_every_edge_are_open_and_nothing_else_is(provider: Provider, lustre: bool) -> None:
    graph = declared(provider, lustre=lustre)
    expected = told(edges(out=True, lustre=lustre))
    assert set(rules(graph, "Ingress")) == {rule for rule in expected if rule[1] != "internet"}
    assert set(rules(graph, "Egress")) == {rule for rule in expected if rule[0] != "network"}


def test_efa_refers_to_itself_both_ways_with_all_protocols(graph: Graph) -> None:
    whole = ("efa", "efa", "-1", None, None)
    assert [rule for rule in rules(graph, "Ingress") if "efa" in rule] == [whole]
    assert [rule for rule in rules(graph, "Egress") if "efa" in rule] == [whole]


def test_the_internet_opens_nothing(graph: Graph) -> None:
    assert not [rule for rule in rules(graph, "Ingress") if rule[0] == "internet"]
    assert [rule for rule in rules(graph, "Egress") if rule[1] == "internet"] == [
        ("nodes", "internet", "tcp", 443, 443)
    ]


def test_without_a_way_out_nodes_reach_s3_and_nothing_else_outside(provider: Provider) -> None:
    outside = {rule for rule in rules(declared(provider, nat="none"), "Egress") if rule[0] == "nodes"}
    known = {"nodes", "cluster", "store", "endpoints"}
    assert {rule[1:] for rule in outside if rule[1] not in known} == {
        ("region-gateway-s3-prefix-list-id", "tcp", 443, 443)
    }


def test_data_is_reached_from_nodes_only(provider: Provider) -> None:
    for lustre, ports in ((False, {6379}), (True, {6379, 988, 1018})):
        found = [rule for rule in rules(declared(provider, lustre=lustre), "Ingress") if rule[1] == "store"]
        assert {rule[0] for rule in found} <= {"nodes", "store"}
        assert {rule[3] for rule in found} == ports


def test_the_group_that_a_vpc_comes_with_allows_nothing(graph: Graph) -> None:
    assert set(graph.one("DefaultSecurityGroup").inputs) == {"vpcId"}


def test_the_load_balancer_controller_opens_ports_of_nodes_and_of_no_other_group(graph: Graph) -> None:
    tag = f"kubernetes.io/cluster/{CLUSTER}"
    tagged = [one.name for one in graph.of("SecurityGroup") if tag in one.inputs["tags"]]
    assert tagged == ["region-groups-nodes"]
    assert graph.one("SecurityGroup", "nodes").inputs["tags"][tag] == "owned"


def test_groups_go_although_others_name_them(graph: Graph) -> None:
    assert all(one.inputs["revokeRulesOnDelete"] for one in graph.of("SecurityGroup"))


def test_every_rule_says_why_in_words_that_ec2_takes(graph: Graph) -> None:
    """EC2 API, IpRange: up to 255 characters, of which the provider checks but the number."""
    for way in ("Ingress", "Egress"):
        for one in graph.of(f"SecurityGroup{way}Rule"):
            assert re.fullmatch(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{1,255}", one.inputs["description"])
