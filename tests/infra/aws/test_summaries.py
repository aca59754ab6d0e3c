"""Example stacks as they would be made: as their summaries say, within the rules, and as they are priced."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from infra import cost
from infra.policy.rules import faults, idle
from tests.infra.aws.recorder import Graph
from tests.infra.aws.summary import FOLDER, declared, summary
from tests.infra.aws.terraform import Provider
from tests.infra.aws.test_policy import resources
from tests.infra.aws.test_stack_files import REGIONS

Graphs = Callable[[str], Graph]


@pytest.fixture(scope="module")
def graphs(provider: Provider) -> Graphs:
    return functools.cache(lambda stack: declared(provider, REGIONS[stack]))


@pytest.mark.parametrize("stack", REGIONS)
def test_the_summary_is_current(stack: str, graphs: Graphs) -> None:
    committed = (FOLDER / f"{stack}.txt").read_text(encoding="utf-8")
    found = summary(graphs(stack), REGIONS[stack])
    assert committed == found, "look at the difference, and write it with `python -m tests.infra.aws.summary`"


@pytest.mark.parametrize("stack", REGIONS)
def test_it_keeps_every_rule(stack: str, graphs: Graphs) -> None:
    found = resources(graphs(stack))
    assert [f"{one.name} {said} ({rule.name})" for rule, one, said in faults(found)] == []
    assert list(idle(REGIONS[stack], found)) == []


@pytest.mark.parametrize("stack", REGIONS)
def test_what_is_priced_is_what_is_made(stack: str, graphs: Graphs) -> None:
    """The bill is of the configuration, not of the resources; they must not come apart."""
    graph = graphs(stack)
    lines = {line.what: line.count for line in cost.bill(REGIONS[stack]).lines}
    assert lines.get("NAT gateway", 0) == len(graph.of("NatGateway"))
    placed = [one for one in graph.of("VpcEndpoint") if one.inputs.get("vpcEndpointType") == "Interface"]
    endpoints = sum(len(one.inputs["subnetIds"]) for one in placed)
    assert lines.get("interface endpoint in a zone", 0) == endpoints
    assert lines["KMS key"] == len(graph.of("kms/key:Key"))
    (valkey,) = (count for what, count in lines.items() if what.startswith("Valkey node"))
    assert valkey == graph.one("ReplicationGroup").inputs["numCacheClusters"]
    for group in graph.of("NodeGroup"):
        pool = group.name.removeprefix("region-")
        (nodes,) = (count for what, count in lines.items() if what.startswith(f"node of {pool},"))
        assert nodes == group.inputs["scalingConfig"]["desiredSize"]
