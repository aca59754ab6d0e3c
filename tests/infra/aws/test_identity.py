"""A role for each workload, none beyond the boundary, all of it there before the pods."""

from __future__ import annotations

import json
from itertools import product

import pytest

from infra.aws.identity import BOUNDARY_CHARACTERS, Identity, IdentityArgs, Workload
from infra.aws.permissions import karpenter, load_balancer, observers, stores
from infra.aws.permissions.statement import Place, Statement
from tests.infra.aws.recorder import ACCOUNT, REGION, Graph, record
from tests.infra.aws.terraform import Provider

PLACE = Place("aws", REGION, ACCOUNT)
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"
EBS = "arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"


def workloads() -> dict[str, Workload]:
    weights = list(stores.reads("arn:aws:s3:::weights", KEY, PLACE, "Weights"))
    kv = list(stores.keeps("arn:aws:s3:::kv", KEY, PLACE, "Kv"))
    vpc = PLACE.arn("ec2", "vpc/vpc-1")
    role, queue = PLACE.global_arn("iam", "role/nodes"), PLACE.arn("sqs", "interruptions")
    return {
        "prefill-worker": Workload("diphase", "prefill-worker", [*weights, *kv]),
        "kv": Workload("diphase", "kv", kv),
        "load-balancer": Workload("kube-system", "lbc", list(load_balancer.statements(PLACE, "c", vpc))),
        "karpenter": Workload("kube-system", "karpenter", list(karpenter.statements(PLACE, "c", role, queue, KEY))),
        "external-dns": Workload("external-dns", "external-dns", list(observers.dns("arn:aws:route53:::hostedzone/Z"))),
        "prometheus": Workload(
            "monitoring", "prometheus", list(observers.remote_write(PLACE.arn("aps", "workspace/w")))
        ),
        "ebs-csi": Workload("kube-system", "ebs-csi-controller-sa", managed=[EBS]),
    }


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return record(provider, lambda: Identity("identity", IdentityArgs("c", workloads(), PLACE)))


def test_the_provider_takes_it(graph: Graph, provider: Provider) -> None:
    assert list(graph.faults(provider)) == []


def test_each_workload_has_a_role_of_its_own_within_the_boundary(graph: Graph) -> None:
    roles = graph.of("Role")
    assert len(roles) == len(graph.of("PodIdentityAssociation")) == 7
    boundary = graph.one("Policy").name
    assert all(boundary in role.inputs["permissionsBoundary"] for role in roles)
    trust = json.loads(roles[0].inputs["assumeRolePolicy"])["Statement"][0]
    assert trust["Principal"] == {"Service": ["pods.eks.amazonaws.com"]}
    assert trust["Action"] == ["sts:AssumeRole", "sts:TagSession"]


def test_no_action_on_everything_but_reading(graph: Graph) -> None:
    """A statement on every resource may read, and nothing else; no statement has a pattern of actions."""
    reading = ("Describe", "List", "Get")
    for policy in graph.of("RolePolicy"):
        for one in json.loads(policy.inputs["policy"])["Statement"]:
            assert not any("*" in action for action in one["Action"])
            if "*" in one["Resource"]:
                assert all(action.partition(":")[2].startswith(reading) for action in one["Action"]), one


def test_the_boundary_holds_every_action_and_fits(graph: Graph) -> None:
    text = graph.one("Policy").inputs["policy"]
    assert len(text.replace(" ", "")) <= BOUNDARY_CHARACTERS
    statements = {one["Sid"]: one for one in json.loads(text)["Statement"]}
    assert statements["Here"]["Condition"] == {"StringEquals": {"aws:RequestedRegion": REGION}}
    allowed = {action for one in statements.values() for action in one["Action"]}
    used = {a for p in graph.of("RolePolicy") for s in json.loads(p.inputs["policy"])["Statement"] for a in s["Action"]}
    assert used < allowed
    # By these a role could give itself more.
    assert not allowed & {"iam:PutRolePolicy", "iam:AttachRolePolicy", "iam:CreateRole", "sts:AssumeRole"}


def test_case_38_a_role_can_do_its_work_before_it_is_associated(graph: Graph) -> None:
    for association, policy in product(graph.of("PodIdentityAssociation"), graph.of("RolePolicy")):
        if association.name == policy.name:
            assert policy.urn in association.dependencies


def test_conditions_hold_controllers_to_their_cluster(graph: Graph) -> None:
    policy = json.loads(graph.one("RolePolicy", "karpenter").inputs["policy"])
    end = next(one for one in policy["Statement"] if one["Sid"] == "End")
    assert end["Condition"]["StringEquals"] == {"aws:ResourceTag/kubernetes.io/cluster/c": "owned"}
    policy = json.loads(graph.one("RolePolicy", "load-balancer").inputs["policy"])
    change = next(one for one in policy["Statement"] if one["Sid"] == "Change")
    assert change["Condition"]["StringEquals"] == {"aws:ResourceTag/elbv2.k8s.aws/cluster": "c"}


def test_the_judge_judges(provider: Provider) -> None:
    """A wrong name, a wrong document and a wrong value are each found."""
    from pulumi_aws import iam

    def wrong() -> None:
        iam.Role("a", assume_role_policy="{")
        iam.Role("b", assume_role_policy="{}", max_session_duration=5)
        iam.Role("c", assume_role_policy="{}", permissions_boundary="boundary")

    found = list(record(provider, wrong).faults(provider))
    assert sorted(fault.partition(":")[0] for fault in found) == ["a", "b", "c"]


def test_a_statement_is_written_as_iam_has_it() -> None:
    body = Statement("S", ["s3:GetObject"], ["r"], {"Bool": {"a": "b"}}, "Deny", "*").body()
    assert list(body) == ["Sid", "Effect", "Principal", "Action", "Resource", "Condition"]
