"""Karpenter: warned by a queue, held to the pinned release, in no hurry to end a node with streams."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from infra.aws.identity import Identity, IdentityArgs
from infra.aws.karpenter import Karpenter, KarpenterArgs, image_parameter, karpenter_objects
from infra.aws.launch_templates import TAGGED
from infra.config.aws.defaults import filled
from tests.conftest import CACHE
from tests.infra.aws.pools import BLOCK, GROUPS, KEY, PLACE, RESERVED, ROLE, SUBNETS, TAGS, capacity, pool
from tests.infra.aws.recorder import Graph, record
from tests.infra.aws.region import config
from tests.infra.aws.terraform import Provider
from tests.infra.kubernetes.crds import validators
from tests.toolchain.kubernetes.judges import definitions

MADE: Mapping[str, Any] = {"provisioner": "karpenter"}
EVERY: Mapping[str, Mapping[str, object]] = {
    "on demand and spot": {"prefill": pool(**MADE), "decode": pool("g6.12xlarge", **MADE, purchase="spot")},
    "reservation and block": {"prefill": pool(**MADE, **RESERVED), "decode": pool("p6-b300.48xlarge", **MADE, **BLOCK)},
    "in every zone": {"prefill": {"instanceType": "g6.48xlarge", **MADE}, "longPrompt": pool("g6e.12xlarge", **MADE)},
}


def args(changes: Mapping[str, object]) -> KarpenterArgs:
    return KarpenterArgs(capacity(changes), PLACE, "c", ROLE, "nodes", SUBNETS, GROUPS, KEY, TAGS)


def spec(kind: str, **prefill: Any) -> Any:
    """Of the class or pool of prefill."""
    found = karpenter_objects(args({"prefill": pool(**MADE, **prefill)}))
    return next(one["spec"] for one in found if one["kind"] == kind)


def declared(provider: Provider) -> Graph:
    """Karpenter and its role."""

    def program() -> None:
        made = Karpenter("karpenter", args(EVERY["on demand and spot"]))
        Identity("identity", IdentityArgs("c", {"karpenter": made.workload()}, PLACE))

    return record(provider, program)


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider)


def allowed(graph: Graph) -> dict[str, Any]:
    return {one["Sid"]: one for one in json.loads(graph.one("RolePolicy").inputs["policy"])["Statement"]}


def test_the_provider_takes_it(graph: Graph, provider: Provider) -> None:
    assert list(graph.faults(provider)) == []


@pytest.mark.parametrize("changes", EVERY.values(), ids=list(EVERY))
def test_karpenters_definitions_take_its_objects(changes: Mapping[str, object]) -> None:
    if shutil.which("go") is None:
        pytest.skip("needs go, which only a machine without a released CLI has")
    judges: Mapping[Any, jsonschema.Draft4Validator] = validators(definitions(CACHE))
    made = list(karpenter_objects(args(changes)))
    assert [one["kind"] for one in made] == ["EC2NodeClass", "NodePool"] * 2
    for one in made:
        judges[one["apiVersion"], one["kind"]].validate(one)
        with pytest.raises(jsonschema.ValidationError, match="wrong"):
            judges[one["apiVersion"], one["kind"]].validate({**one, "spec": {**one["spec"], "wrong": 1}})


def test_the_queue_hears_of_every_interruption_and_of_nobody_else(graph: Graph) -> None:
    assert graph.one("Queue").inputs["sqsManagedSseEnabled"] is True
    patterns = [json.loads(one.inputs["eventPattern"]) for one in graph.of("EventRule")]
    heard = {kind for pattern in patterns for kind in pattern["detail-type"]}
    assert "EC2 Spot Instance Interruption Warning" in heard
    assert "EC2 Capacity Reservation Instance Interruption Warning" in heard
    assert len(graph.of("EventTarget")) == len(patterns) == 5
    policy = {one["Sid"]: one for one in json.loads(graph.one("QueuePolicy").inputs["policy"])["Statement"]}
    assert policy["Events"]["Principal"] == {"Service": "events.amazonaws.com"}
    assert len(policy["Events"]["Condition"]["ArnEquals"]["aws:SourceArn"]) == 5
    assert policy["TlsOnly"]["Effect"] == "Deny"


def test_it_may_start_nodes_with_encrypted_disks(graph: Graph) -> None:
    """Without that its instances end as soon as they begin (karpenter-provider-aws#1407)."""
    found = allowed(graph)
    assert found["DiskGrants"]["Resource"] == found["Disks"]["Resource"] == [KEY]
    assert found["DiskGrants"]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    through = {"kms:ViaService": f"ec2.{PLACE.region}.amazonaws.com"}
    assert found["Disks"]["Condition"]["StringEquals"] == found["DiskGrants"]["Condition"]["StringEquals"] == through


def test_it_may_make_the_profile_of_its_nodes(graph: Graph) -> None:
    """A profile that does not exist has no tag that a condition could ask for: the request has."""
    found = allowed(graph)
    assert found["NewProfile"]["Condition"] == {"StringEquals": {"aws:RequestTag/kubernetes.io/cluster/c": "owned"}}
    assert found["Profiles"]["Condition"] == {"StringEquals": {"aws:ResourceTag/kubernetes.io/cluster/c": "owned"}}
    assert len(found["TagProfile"]["Condition"]["StringEquals"]) == 2


def test_the_ami_is_that_of_the_stacks_file() -> None:
    """Reported of others as karpenter#6952: a newer AMI replaced every node."""
    [term] = spec("EC2NodeClass", amiRelease="1.35.6-20260818")["amiSelectorTerms"]
    assert term["ssmParameter"].endswith("/amazon-eks-node-al2023-x86_64-nvidia-1.35-v20260818/image_id")
    prefill = capacity({"prefill": pool(amiRelease="1.34.3-20260101")}).prefill
    assert prefill is not None
    assert image_parameter(prefill).startswith("/aws/service/eks/optimized-ami/1.34/")


def test_a_reservation_is_used_and_nothing_beside_it() -> None:
    assert spec("EC2NodeClass", **RESERVED)["capacityReservationSelectorTerms"] == [{"id": RESERVED["reservationId"]}]
    assert "capacityReservationSelectorTerms" not in spec("EC2NodeClass")
    wanted = {one["key"]: one["values"] for one in spec("NodePool", **RESERVED)["template"]["spec"]["requirements"]}
    assert wanted["karpenter.sh/capacity-type"] == ["reserved"]
    assert wanted["topology.kubernetes.io/zone"] == [RESERVED["zone"]]
    assert spec("EC2NodeClass", **RESERVED)["subnetSelectorTerms"] == [{"id": "subnet-0a"}]


def test_its_nodes_have_interfaces_disks_metadata_and_tags_as_node_groups_have() -> None:
    found = spec("EC2NodeClass", instance_type="p5en.48xlarge")
    fabric = [one for one in found["networkInterfaces"] if one["interfaceType"] == "efa-only"]
    assert len(fabric) == 16
    assert found["securityGroupSelectorTerms"] == [{"id": GROUPS["nodes"]}, {"id": GROUPS["efa"]}]
    disk = found["blockDeviceMappings"][0]["ebs"]
    assert (disk["encrypted"], disk["kmsKeyID"], disk["volumeType"]) == (True, KEY, "gp3")
    assert found["metadataOptions"]["httpTokens"] == "required"
    assert found["instanceStorePolicy"] == "RAID0"
    assert found["tags"] == TAGS, f"Karpenter gives them to {', '.join(TAGGED)}"


def test_streams_outlive_thrift() -> None:
    """No node that has pods is ended to save money, none because of its age."""
    found = spec("NodePool")
    assert found["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert found["disruption"]["budgets"] == [{"nodes": "1"}]
    assert found["template"]["spec"]["expireAfter"] == "Never"


def test_a_pool_grows_to_its_most_nodes() -> None:
    assert spec("NodePool", max=3, instance_type="g6.12xlarge")["limits"] == {"nvidia.com/gpu": "12"}


def test_workloads_find_their_nodes_and_nobody_else_does() -> None:
    pod, found = filled(config()).kubernetes.prefill, spec("NodePool")["template"]
    assert found["metadata"]["labels"].items() >= pod.node_selector.items()
    assert {one["key"] for one in found["spec"]["taints"]} == {one.key for one in pod.tolerations}


def test_nodes_that_must_always_be_there_are_not_karpenters() -> None:
    with pytest.raises(Exception, match=r"min \(1\) needs provisioner nodeGroup"):
        capacity({"prefill": pool(**MADE, min=1)})
