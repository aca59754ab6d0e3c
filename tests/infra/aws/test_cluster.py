"""The cluster as it would be made: who reaches it, what it keeps, what comes before what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.aws.node_role import POLICIES
from tests.infra.aws import mapping
from tests.infra.aws.clusters import AUTHORITY, DEPLOY, KEY, NAME, declared
from tests.infra.aws.recorder import REGION, Graph
from tests.infra.aws.terraform import Provider

CLUSTER = "eks/cluster:Cluster"


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider)


def kubeconfig(graph: Graph) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(graph.one("User").inputs["kubeconfig"])
    return found


@pytest.mark.parametrize(
    "cluster",
    [
        {},
        {"publicCidrs": ["203.0.113.0/24"], "version": "1.34", "addons": {"kubeProxy": "v1.34.1-eksbuild.1"}},
        {"admins": [DEPLOY], "readers": ["arn:aws:iam::123456789012:role/team/look"], "logTypes": ["audit"]},
    ],
)
def test_the_provider_takes_it(provider: Provider, cluster: dict[str, object]) -> None:
    assert list(declared(provider, **cluster).faults(provider)) == []


def test_what_the_provider_is_too_old_for_is_documented(graph: Graph, provider: Provider) -> None:
    assert graph.one(CLUSTER).inputs["deletionProtection"] is True
    assert "User Guide" in mapping.NEWER["aws_eks_cluster", "deletionProtection"]


def test_only_entries_decide_and_its_maker_gets_nothing_by_making_it(graph: Graph) -> None:
    access = graph.one(CLUSTER).inputs["accessConfig"]
    assert access == {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}


def test_it_is_reached_from_inside_only_unless_networks_are_named(provider: Provider, graph: Graph) -> None:
    closed = graph.one(CLUSTER).inputs["vpcConfig"]
    assert (closed["endpointPrivateAccess"], closed["endpointPublicAccess"]) == (True, False)
    assert "publicAccessCidrs" not in closed
    opened = declared(provider, publicCidrs=["203.0.113.0/24"]).one(CLUSTER).inputs["vpcConfig"]
    assert (opened["endpointPrivateAccess"], opened["endpointPublicAccess"]) == (True, True)
    assert opened["publicAccessCidrs"] == ["203.0.113.0/24"]


def test_secrets_are_encrypted_with_the_regions_key(graph: Graph) -> None:
    found = graph.one(CLUSTER).inputs["encryptionConfig"]
    assert found == {"provider": {"keyArn": KEY}, "resources": ["secrets"]}


def test_case_42_no_extended_support_and_a_log_that_ends(graph: Graph) -> None:
    assert graph.one(CLUSTER).inputs["upgradePolicy"] == {"supportType": "STANDARD"}
    log = graph.one("LogGroup")
    assert log.inputs["name"] == f"/aws/eks/{NAME}/cluster"
    assert (log.inputs["retentionInDays"], log.inputs["kmsKeyId"]) == (90, KEY)
    # Made before the cluster, which would make one without an end, and deleted after it.
    assert log.urn in graph.one(CLUSTER).dependencies


def test_the_control_plane_has_its_policy_as_long_as_it_lives(graph: Graph) -> None:
    allowed = next(one for one in graph.of("RolePolicyAttachment") if one.name == "cluster")
    assert allowed.inputs["policyArn"] == "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    assert allowed.urn in graph.one(CLUSTER).dependencies


def test_it_is_protected_unless_somebody_says_otherwise(provider: Provider, graph: Graph) -> None:
    assert graph.one(CLUSTER).protect
    loose = declared(provider, protect=False).one(CLUSTER)
    assert not loose.protect
    assert loose.inputs["deletionProtection"] is False


def test_nodes_may_join_pull_and_hand_out_credentials_and_no_more(graph: Graph) -> None:
    attached = [one for one in graph.of("RolePolicyAttachment") if one.name.startswith("cluster-nodes-")]
    assert {one.inputs["policyArn"].rpartition("/")[2] for one in attached} == set(POLICIES)
    assert not any("CNI" in policy or "SSM" in policy or "PowerUser" in policy for policy in POLICIES)
    (statement,) = json.loads(graph.one("RolePolicy", "cluster-nodes").inputs["policy"])["Statement"]
    assert statement["Action"] == ["ecr:CreateRepository"]
    assert all(one.endswith(":repository/cache/*") for one in statement["Resource"])


def test_nodes_come_after_all_that_they_need(graph: Graph) -> None:
    waits = graph.one("Node").dependencies
    needed = [graph.one("Addon", kind) for kind in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")]
    needed += [graph.one("AccessEntry", "cluster-access-nodes"), graph.one("RolePolicy", "cluster-nodes")]
    needed += [one for one in graph.of("RolePolicyAttachment") if one.name.startswith("cluster-nodes-")]
    assert len(needed) == 7
    assert {one.urn for one in needed} <= set(waits)


def test_whoever_asks_gets_a_token_by_the_command(graph: Graph) -> None:
    found = kubeconfig(graph)
    assert found["current-context"] == found["contexts"][0]["name"] == found["users"][0]["name"] == "test"
    cluster = found["clusters"][0]["cluster"]
    assert cluster == {"server": "https://0123.eks.amazonaws.com", "certificate-authority-data": AUTHORITY}
    asked = found["users"][0]["user"]["exec"]
    assert [asked["command"], *asked["args"]] == [
        *("diphase", "cluster-token", "--cluster", NAME, "--region", REGION, "--role", DEPLOY)
    ]
    assert asked["interactiveMode"] == "Never"
    assert "PATH" in asked["installHint"]


def test_without_a_role_the_credentials_are_those_that_are_found(provider: Provider) -> None:
    asked = kubeconfig(declared(provider, deploy_role=None, admins=[DEPLOY]))["users"][0]["user"]["exec"]
    assert "--role" not in asked["args"]


def test_the_kubeconfig_waits_until_its_user_may_do_something(graph: Graph) -> None:
    entry = graph.one("AccessPolicyAssociation", "role-deploy")
    assert entry.urn in graph.one("User").dependencies
