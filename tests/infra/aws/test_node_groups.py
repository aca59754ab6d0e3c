"""Node groups: pinned, in their zone, never scaled back by an update, with what the workloads look for."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pytest
from pulumi_aws import ec2

from infra.aws.node_groups import NodePools, NodePoolsArgs
from infra.config.aws.defaults import filled
from tests.infra.aws.pools import BLOCK, GROUPS, KEY, RESERVED, ROLE, SUBNETS, TAGS, capacity, pool
from tests.infra.aws.recorder import Graph, Recorded, record
from tests.infra.aws.region import config
from tests.infra.aws.terraform import Provider

EVERY: Mapping[str, Mapping[str, object]] = {
    "as it is": {},
    "reservation and block": {"prefill": pool(**RESERVED), "decode": pool("p6-b200.48xlarge", **BLOCK)},
    "spot, a placement group": {
        "decode.purchase": "spot",
        "prefill.placementGroup": True,
        "longPrompt": pool("g6e.12xlarge"),
    },
}


def declared(provider: Provider, changes: Mapping[str, object] | None = None) -> Graph:
    def program() -> None:
        first = ec2.RouteTable("before", vpc_id="vpc-0", opts=pulumi.ResourceOptions())
        NodePools("nodes", NodePoolsArgs(capacity(changes), "c", ROLE, SUBNETS, GROUPS, KEY, TAGS, [first]))

    return record(provider, program)


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider)


def group(graph: Graph, name: str) -> Recorded:
    return graph.one("NodeGroup", f"-{name}")


@pytest.mark.parametrize("changes", EVERY.values(), ids=list(EVERY))
def test_the_provider_takes_it(provider: Provider, changes: Mapping[str, object]) -> None:
    assert list(declared(provider, changes).faults(provider)) == []


def test_a_pool_is_a_group_unless_karpenter_makes_its_nodes(provider: Provider) -> None:
    changed = {"longPrompt": pool("g6e.12xlarge"), "decode.provisioner": "karpenter"}
    names = {one.name for one in declared(provider, changed).of("NodeGroup")}
    assert names == {"nodes-system", "nodes-prefill", "nodes-long-prompt"}


def test_the_number_of_nodes_is_not_reset_by_an_update(graph: Graph) -> None:
    """Reported of others as n8n#50."""
    for one in graph.of("NodeGroup"):
        assert one.ignored == ["scalingConfig.desiredSize"]
        assert one.inputs["scalingConfig"]["desiredSize"] >= one.inputs["scalingConfig"]["minSize"]


def test_the_ami_is_that_of_the_stacks_file(provider: Provider) -> None:
    """Reported of others: karpenter#6952, amazon-eks-ami#2706."""
    found = declared(provider, {"decode.amiRelease": "1.34.3-20260101"})
    assert group(found, "decode").inputs["releaseVersion"] == "1.34.3-20260101"
    assert group(found, "decode").inputs["version"] == "1.34"
    assert group(found, "prefill").inputs["releaseVersion"] == capacity().system.ami_release
    assert group(found, "prefill").inputs["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group(found, "system").inputs["amiType"] == "AL2023_x86_64_STANDARD"
    assert all("imageId" not in one.inputs for one in found.of("LaunchTemplate"))


def test_a_group_lies_in_the_zone_of_its_reservation(provider: Provider) -> None:
    found = declared(provider, EVERY["reservation and block"])
    assert group(found, "prefill").inputs["subnetIds"] == ["subnet-0a"]
    assert group(found, "prefill").inputs["capacityType"] == "ON_DEMAND"
    assert group(found, "decode").inputs["capacityType"] == "CAPACITY_BLOCK"
    assert group(found, "system").inputs["subnetIds"] == list(SUBNETS.values())


def test_nodes_lie_close_together_in_a_placement_group(provider: Provider, graph: Graph) -> None:
    found = declared(provider, EVERY["spot, a placement group"])
    assert found.one("PlacementGroup").inputs["strategy"] == "cluster"
    assert "placement" in found.one("LaunchTemplate", "-prefill").inputs
    assert not graph.of("PlacementGroup")
    assert group(found, "decode").inputs["capacityType"] == "SPOT"


def test_workloads_find_their_nodes_and_nobody_else_does(graph: Graph) -> None:
    kubernetes = filled(config()).kubernetes
    for name, pod in (("system", kubernetes.gateway), ("prefill", kubernetes.prefill), ("decode", kubernetes.decode)):
        inputs = group(graph, name).inputs
        assert inputs["labels"].items() >= pod.node_selector.items()
        taints = {(one["key"], one["value"]) for one in inputs.get("taints", [])}
        assert all(one["effect"] == "NO_SCHEDULE" for one in inputs.get("taints", []))
        tolerated = {one.key: one.value for one in pod.tolerations}
        assert {key for key, _ in taints} == set(tolerated)
        assert all(tolerated[key] in (None, value) for key, value in taints)


def test_one_node_at_a_time_and_gpus_without_a_spare(graph: Graph) -> None:
    assert group(graph, "system").inputs["updateConfig"] == {"maxUnavailable": 1}
    assert group(graph, "decode").inputs["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    assert all(one.inputs["nodeRepairConfig"] == {"enabled": True} for one in graph.of("NodeGroup"))


def test_a_change_of_the_template_reaches_the_nodes(graph: Graph) -> None:
    template = graph.one("LaunchTemplate", "-decode")
    assert template.urn in group(graph, "decode").dependencies
    assert "version" in group(graph, "decode").inputs["launchTemplate"]


def test_nodes_wait_for_what_they_need(graph: Graph) -> None:
    before = graph.one("RouteTable").urn
    assert all(before in one.dependencies for one in graph.of("NodeGroup"))
