"""Who may do what in the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import kubernetes_validate
import pytest

from infra.aws.access_entries import LOOK, READERS, reader_objects
from tests.infra.aws.clusters import DEPLOY, declared
from tests.infra.aws.recorder import Graph
from tests.infra.aws.terraform import Provider

OPS = "arn:aws:iam::123456789012:role/ops"
LOOKER, NAMESAKE = "arn:aws:iam::123456789012:role/team/look", "arn:aws:iam::210987654321:role/team/look"


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider, admins=[OPS, DEPLOY], readers=[LOOKER, NAMESAKE])


def policies(graph: Graph) -> Mapping[str, str]:
    found = graph.of("AccessPolicyAssociation")
    return {one.inputs["principalArn"]: one.inputs["policyArn"].rpartition("/")[2] for one in found}


def test_the_provider_takes_it(graph: Graph, provider: Provider) -> None:
    assert list(graph.faults(provider)) == []


def test_admins_are_the_role_that_deploys_and_those_that_are_named(graph: Graph) -> None:
    found = [who for who, policy in policies(graph).items() if policy == "AmazonEKSClusterAdminPolicy"]
    assert sorted(found) == [DEPLOY, OPS]


def test_readers_see_no_secrets(graph: Graph) -> None:
    # AmazonEKSAdminViewPolicy shows all resources, Secrets too.
    assert [policies(graph)[who] for who in (LOOKER, NAMESAKE)] == ["AmazonEKSViewPolicy"] * 2
    entry = next(one for one in graph.of("AccessEntry") if one.inputs["principalArn"] == LOOKER)
    assert entry.inputs["kubernetesGroups"] == [READERS]
    role = next(one for one in reader_objects() if one["kind"] == "ClusterRole")
    core = next(rule for rule in role["rules"] if rule["apiGroups"] == [""])
    assert not {"secrets", "*"} & set(core["resources"])
    assert all(rule["verbs"] == LOOK and rule["apiGroups"] != ["*"] for rule in role["rules"])


def test_nobody_else_comes_in(graph: Graph) -> None:
    entries = {one.inputs["principalArn"]: one.inputs["type"] for one in graph.of("AccessEntry")}
    node_role = next(who for who, kind in entries.items() if kind == "EC2_LINUX")
    assert "cluster-nodes" in node_role
    assert set(entries) == {DEPLOY, OPS, LOOKER, NAMESAKE, node_role}
    assert node_role not in policies(graph), "EKS itself gives nodes what they need"


def test_the_role_that_deploys_is_waited_for_and_no_new_admin(graph: Graph) -> None:
    waits = graph.one("User").dependencies
    entries = {one.inputs["principalArn"]: one.urn for one in graph.of("AccessPolicyAssociation")}
    assert entries[DEPLOY] in waits
    assert entries[OPS] not in waits


@pytest.mark.parametrize("version", ["1.33", "1.35"])
def test_kubernetes_takes_what_readers_are_given(version: str) -> None:
    for one in reader_objects():
        kubernetes_validate.validate(one, version, strict=True)
