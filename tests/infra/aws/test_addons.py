"""Add-ons: pinned, as the stack says, before or after nodes, with credentials from their first pod on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.config.aws.cluster import Addons
from tests.infra.aws.clusters import KEY, NAME, ZONES, declared
from tests.infra.aws.recorder import REGION, Graph
from tests.infra.aws.terraform import Provider

PINNED = {
    "vpc-cni": Addons().vpc_cni,
    "kube-proxy": Addons().kube_proxy,
    "eks-pod-identity-agent": Addons().pod_identity,
    "coredns": Addons().coredns,
    "aws-ebs-csi-driver": Addons().ebs_csi,
    "eks-node-monitoring-agent": Addons().node_monitoring,
}
AFTER_NODES = ("coredns", "aws-ebs-csi-driver", "eks-node-monitoring-agent")


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider)


def values(graph: Graph) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(graph.one("Addon", "vpc-cni").inputs["configurationValues"])
    return found


def test_case_41_what_is_there_already_is_overwritten(graph: Graph) -> None:
    for one in graph.of("eks/addon:Addon"):
        assert one.inputs["resolveConflictsOnCreate"] == one.inputs["resolveConflictsOnUpdate"] == "OVERWRITE"


def test_each_is_pinned_and_none_comes_by_itself(graph: Graph) -> None:
    found = {one.inputs["addonName"]: one.inputs["addonVersion"] for one in graph.of("eks/addon:Addon")}
    assert found == PINNED
    assert {one.inputs["clusterName"] for one in graph.of("eks/addon:Addon")} == {NAME}
    assert graph.one("eks/cluster:Cluster").inputs["bootstrapSelfManagedAddons"] is False


def test_pods_have_addresses_in_subnets_of_their_own_zone(graph: Graph) -> None:
    found = values(graph)["eniConfig"]
    assert (found["create"], found["region"]) == (True, REGION)
    expected = {zone: {"id": f"subnet-1{zone[-1]}", "securityGroups": ["sg-0nodes"]} for zone in ZONES}
    assert found["subnets"] == expected
    environment = values(graph)["env"]
    assert environment["AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG"] == "true"
    assert environment["ENI_CONFIG_LABEL_DEF"] == "topology.kubernetes.io/zone"


def test_nodes_take_prefixes_and_policies_are_kept(graph: Graph) -> None:
    assert values(graph)["env"]["ENABLE_PREFIX_DELEGATION"] == "true"
    # The add-on's schema has text here, not a boolean.
    assert values(graph)["enableNetworkPolicy"] == "true"


def test_what_needs_nodes_comes_after_them(graph: Graph) -> None:
    node = graph.one("Node").urn
    for kind in PINNED:
        assert (node in graph.one("Addon", kind).dependencies) is (kind in AFTER_NODES), kind


def test_case_38_associations_are_there_before_the_pods(graph: Graph) -> None:
    for account, kind in (("aws-node", "vpc-cni"), ("ebs-csi-controller-sa", "aws-ebs-csi-driver")):
        association = next(one for one in graph.of("PodIdentityAssociation") if one.inputs["serviceAccount"] == account)
        assert association.urn in graph.one("Addon", kind).dependencies
        allowed = [one.urn for one in graph.of("RolePolicyAttachment") if one.name.startswith(association.name)]
        assert allowed
        assert set(allowed) <= set(association.dependencies)


def test_volumes_are_encrypted_with_the_regions_key_and_no_other(graph: Graph) -> None:
    statements = json.loads(graph.one("RolePolicy", "ebs-csi").inputs["policy"])["Statement"]
    assert all(one["Resource"] == [KEY] for one in statements)
    grant = next(one for one in statements if one["Action"] == ["kms:CreateGrant"])
    assert grant["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
