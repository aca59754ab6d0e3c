"""The rules over what the components of a region declare."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.aws.identity import Identity, IdentityArgs
from infra.policy.resource import Resource
from infra.policy.rules import faults
from tests.infra.aws import clusters, test_edge, test_identity, test_registry, test_storage
from tests.infra.aws.recorder import Graph, record
from tests.infra.aws.terraform import Provider

GRAPHS: dict[str, Callable[[Provider], Graph]] = {
    "storage": lambda provider: test_storage.declared(provider, lustre={}),
    "registry": test_registry.declared,
    "edge": test_edge.declared,
    "cluster": clusters.declared,
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
