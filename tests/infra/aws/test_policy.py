"""The rules over what the components of a region declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from infra.aws.identity import Identity, IdentityArgs
from infra.aws.karpenter import karpenter_objects
from infra.aws.network import Network, NetworkArgs
from infra.aws.node_groups import NodePools, NodePoolsArgs
from infra.aws.provider import aws_provider
from infra.policy.resource import Resource
from infra.policy.rules import faults, idle
from tests.infra.aws import (
    clusters,
    test_edge,
    test_identity,
    test_karpenter,
    test_network,
    test_node_groups,
    test_registry,
    test_storage,
)
from tests.infra.aws.recorder import Graph, record
from tests.infra.aws.region import config
from tests.infra.aws.terraform import Provider
from tests.infra.aws.test_node_groups import EVERY

RESERVATION = "cr-0a1b2c3d4e5f60718"


def region(provider: Provider) -> Graph:
    """Nodes in the network that is made for them."""
    place = test_identity.PLACE
    stack = config({"capacity.decode.purchase": "reservation", "capacity.decode.reservationId": RESERVATION})

    def program() -> None:
        aws_provider("region", stack, "test")
        network = Network("region", NetworkArgs(stack.network, place, "c", test_network.KEY, 90))
        args = NodePoolsArgs(
            stack.capacity,
            "c",
            test_node_groups.ROLE,
            network.subnets["private"],
            network.groups,
            test_network.KEY,
            test_node_groups.TAGS,
            network.ready,
        )
        NodePools("nodes", args)

    return record(provider, program)


GRAPHS: dict[str, Callable[[Provider], Graph]] = {
    "storage": lambda provider: test_storage.declared(provider, lustre={}),
    "registry": test_registry.declared,
    "edge": test_edge.declared,
    "cluster": clusters.declared,
    "region": region,
    "nodes of every purchase": lambda provider: test_node_groups.declared(provider, EVERY["reservation and block"]),
    "karpenter": test_karpenter.declared,
    "identity": lambda provider: record(
        provider, lambda: Identity("identity", IdentityArgs("c", test_identity.workloads(), test_identity.PLACE))
    ),
}


def resources(graph: Graph) -> list[Resource]:
    """What was recorded, as rules see it."""
    return [
        Resource(one.type, one.name, one.inputs, one.urn, one.protect, one.ignored, one.dependencies)
        for one in graph.resources
    ]


@pytest.mark.parametrize("component", GRAPHS)
def test_every_component_keeps_the_rules(component: str, provider: Provider) -> None:
    found = resources(GRAPHS[component](provider))
    assert [f"{one.name} {said} ({rule.name})" for rule, one, said in faults(found)] == []


def test_a_reservation_of_the_stack_is_in_the_template_of_its_pool(provider: Provider) -> None:
    stack = config({"capacity.decode.purchase": "reservation", "capacity.decode.reservationId": RESERVATION})
    found = resources(region(provider))
    assert list(idle(stack, found)) == []
    without = [one for one in found if one.name != "nodes-decode"]
    assert [said.partition(" ")[0] for said in idle(stack, without)] == [RESERVATION]


def test_a_node_group_in_a_public_subnet_is_found(provider: Provider) -> None:
    """The rule reads the way to the internet off route tables, as the network declares them."""
    found = resources(region(provider))
    public = {one.urn for one in found if one.kind == "Subnet" and "-public-" in one.name}
    (group,) = [one for one in found if one.kind == "NodeGroup" and one.name == "nodes-system"]
    moved = replace(group, dependencies=[*group.dependencies, *public])
    said = {said for rule, one, said in faults([*found, moved]) if rule.name == "private-nodes"}
    assert {one.split(",")[0] for one in said} == {f"has nodes in region-public-{letter}" for letter in "abc"}


@pytest.mark.parametrize("changes", test_karpenter.EVERY.values(), ids=list(test_karpenter.EVERY))
def test_what_karpenter_gets_keeps_the_rules(changes: Mapping[str, object]) -> None:
    made = list(karpenter_objects(test_karpenter.args(changes)))
    kinds = [Resource(f"kubernetes:{one['apiVersion']}:{one['kind']}", one["metadata"]["name"], one) for one in made]
    assert any(one.kind == "EC2NodeClass" for one in kinds)
    assert [said for _, _, said in faults(kinds)] == []
