"""The groups of a region: what is wrong is named with its remedy, what is left out is known, no subnet ever moves."""

from __future__ import annotations

import ipaddress
from itertools import combinations
from typing import Any

import pytest

from infra.config import ConfigError, StackConfig
from infra.config.aws.network import Network
from infra.config.aws.subnets import subnets
from tests.infra.aws.region import RIGHT, SERVING, changed, config

CR = "cr-0123456789abcdef0"
RESERVED = {"purchase": "reservation", "reservationId": CR}
P5 = {"instanceType": "p5.48xlarge", "zone": "us-east-1a"}


def faults(values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        StackConfig.parse(values)
    return caught.value.faults


def test_what_a_region_needs_is_asked_for_at_once() -> None:
    said = faults({"target": "aws"})
    keys = ["region.name", "region.account", "network.zones", "capacity.prefill", "capacity.decode", "cluster.admins"]
    assert [fault.partition(" ")[0] for fault in said] == [f"diphase:{key}" for key in keys]
    assert all("is missing; " in fault for fault in said)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"region.name": "virginia"}, ["region.name is 'virginia'"]),
        ({"region.account": "12345"}, ["region.account is '12345'"]),
        ({"region.account": 123456789012}, ["region.account is 123456789012", "valid string"]),
        ({"region.environment": "Prod"}, ["region.environment is 'Prod'"]),
        ({"region.tags": {"aws:x": "y"}}, ["AWS keeps names that begin with aws"]),
        ({"region.tags": {"diphase:x": "y"}}, ["the stack sets what begins with diphase"]),
        ({"region.tags": {"k": "v" * 257}}, ["too long"]),
        ({"region.deployRole": "deploy"}, ["region.deployRole is 'deploy'"]),
        ({"network.cidr": "10.0.0.1/16"}, ["network.cidr: '10.0.0.1/16' is no block"]),
        ({"network.cidr": "10.0.0.0/20"}, ["network: cidr is 10.0.0.0/20", "between /16 and /18"]),
        ({"network.cidr": "8.0.0.0/16"}, ["addresses of the internet", "take a private block"]),
        ({"network.cidr": "fd00::/48"}, ["IPv6", "take a block of IPv4"]),
        ({"network.podCidr": "10.0.0.0/16"}, ["cidr (10.0.0.0/16) and podCidr (10.0.0.0/16) overlap"]),
        ({"network.podCidr": "192.168.0.0/16"}, ["can't be added to a VPC of 10.0.0.0/16", "100.64.0.0/10"]),
        ({"network.peers": ["10.0.128.0/20"]}, ["overlaps 10.0.128.0/20 of peers"]),
        ({"network.zones": ["us-east-1a"]}, ["EKS needs two"]),
        ({"network.zones": ["us-east-1a", "us-east-1a"]}, ["zones lists something twice"]),
        (
            {"network.zones": ["us-east-1a", "us-west-2b"]},
            ["network.zones has us-west-2b", "take zones of region.name"],
        ),
        ({"network.nat": "none", "network.endpoints": ["ec2", "sts"]}, ["network.endpoints lacks ecr.api", "set nat"]),
        ({"network.endpoints": ["s3"]}, ["network.endpoints.0 is 's3'"]),
        ({"network.flowLogs": "some"}, ["network.flowLogs is 'some'"]),
        ({"cluster.version": 1.35}, ["cluster.version is 1.35", "valid string"]),
        ({"cluster.version": "1.34"}, ["addons.kubeProxy is v1.35.3-eksbuild.18, newer than version 1.34"]),
        ({"cluster.publicCidrs": ["0.0.0.0/0"]}, ["publicCidrs has 0.0.0.0/0", "name the networks"]),
        ({"cluster.serviceCidr": "10.0.0.0/16"}, ["cluster.serviceCidr (10.0.0.0/16) overlaps network.cidr"]),
        ({"cluster.serviceCidr": "172.20.0.0/28"}, ["EKS takes blocks between /12 and /24"]),
        ({"cluster.admins": []}, ["cluster.admins is missing", "nobody could use the cluster"]),
        ({"cluster.readers": RIGHT["cluster"]["admins"]}, ["which admins has too"]),
        ({"cluster.addons": {"coredns": "latest"}}, ["cluster.addons.coredns is 'latest'"]),
        ({"capacity.prefill.instanceType": "p5.48large"}, ["prefill.instanceType: 'p5.48large'", "take one of p5.4x"]),
        ({"capacity.prefill.instanceTyp": "p5"}, ["prefill.instanceTyp is unknown; did you mean instanceType?"]),
        ({"capacity.system.instanceType": "g6.12xlarge"}, ["system.instanceType is g6.12xlarge", "has GPUs"]),
        ({"capacity.system.instanceType": "m7g.xlarge"}, ["of the Arm architecture", "take m7i.xlarge"]),
        ({"capacity.system.min": 9}, ["capacity.system: min (9) must not exceed max (6)"]),
        ({"capacity.decode.nodes": 2}, ["capacity.decode: nodes (2) must lie between min (0) and max (1)"]),
        ({"capacity.decode.purchase": "reservation"}, ["purchase reservation needs reservationId"]),
        ({"capacity.decode.purchase": "block"}, ["purchase block needs reservationId"]),
        ({"capacity.decode.reservationId": CR}, ["purchase is onDemand, so that the reservation would idle"]),
        ({"capacity.decode": {**P5, **RESERVED, "placementGroup": True}}, ["placementGroup and purchase reservation"]),
        (
            {"capacity.longPrompt": {"instanceType": "g6.12xlarge", "purchase": "block", "reservationId": CR}},
            ["capacity.longPrompt: purchase block needs zone"],
        ),
        (
            {"capacity.longPrompt": {"instanceType": "g6.12xlarge", "placementGroup": True}},
            ["placementGroup needs zone"],
        ),
        (
            {"capacity.decode": {**P5, "placementGroup": True, "provisioner": "karpenter"}},
            ["placementGroup needs provisioner nodeGroup"],
        ),
        ({"capacity.decode.zone": None}, ["capacity.decode.zone is missing; p5en.48xlarge has EFA"]),
        ({"capacity.decode.zone": "us-east-1b"}, ["KV moves over EFA, which does not cross zones"]),
        ({"capacity.longPrompt": {**P5, "zone": "us-east-1d"}}, ["capacity.longPrompt.zone is us-east-1d; no subnet"]),
        ({"capacity.decode.amiRelease": "latest"}, ["capacity.decode.amiRelease is 'latest'"]),
        ({"capacity.decode.amiRelease": "1.36.2-20260818"}, ["nodes of a cluster of 1.35 are of that version"]),
        ({"capacity.decode.diskThroughput": 1000, "capacity.decode.diskIops": 3000}, ["needs diskIops of 4000"]),
        ({"kubernetes.prefill": {"gpu": {"count": 9}}}, ["prefill.gpu.count is 9; p5.48xlarge has 8"]),
        ({"kubernetes.decode": {"efa": 17}}, ["decode.efa is 17; p5en.48xlarge has 16"]),
        ({"kubernetes.context": "c"}, ["kubernetes.context is for the kubernetes target"]),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(changes: dict[str, Any], says: list[str]) -> None:
    found = faults(changed(changes))
    assert any(all(part in fault for part in says) for fault in found), found


def test_a_region_comes_before_its_images_but_not_with_half_of_them() -> None:
    assert not config().serves
    assert config(serving=True).serves
    half = faults(changed({"images.digests": {"kv": SERVING["images"]["digests"]["kv"]}}))
    assert [fault.partition(" ")[0] for fault in half][:3] == [
        f"diphase:images.digests.{role}" for role in ("gateway", "scheduler", "worker")
    ]


def test_pods_go_to_the_nodes_of_their_pool_unless_the_stack_says_otherwise() -> None:
    found = config().kubernetes
    assert found.decode.node_selector == {"diphase.io/pool": "decode"}
    assert [(one.key, one.value) for one in found.prefill.tolerations] == [
        ("diphase.io/pool", "prefill"),
        ("nvidia.com/gpu", None),
    ]
    assert found.gateway.node_selector == {"diphase.io/pool": "system"}
    assert found.gateway.tolerations == []
    own = config(
        {"kubernetes.decode": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]}}
    ).kubernetes
    assert own.decode.node_selector == {"a": "b"}
    assert len(own.decode.tolerations) == 1
    assert found.model_volume.fetch
    assert found.api_server_cidrs == ["10.0.144.0/26", "10.0.144.64/26", "10.0.144.128/26"]


@pytest.mark.parametrize("prefix", [16, 17, 18])
def test_subnets_lie_in_their_network_and_apart(prefix: int) -> None:
    zones = [f"us-east-1{letter}" for letter in "abcd"]
    network = Network.model_validate({"cidr": f"10.0.0.0/{prefix}", "podCidr": f"100.64.0.0/{prefix}", "zones": zones})
    found = list(subnets(network))
    blocks = [ipaddress.IPv4Network(subnet.cidr) for subnet in found]
    assert len(blocks) == 16
    assert not any(one.overlaps(other) for one, other in combinations(blocks, 2))
    for subnet, block in zip(found, blocks, strict=True):
        whole = network.pod_cidr if subnet.kind == "pods" else network.cidr
        assert block.subnet_of(ipaddress.IPv4Network(whole))
        assert block.prefixlen <= 28
        if subnet.prefixes:
            assert ipaddress.IPv4Network(subnet.prefixes).subnet_of(block)


def test_a_new_zone_moves_no_subnet() -> None:
    two, three = (
        {(s.kind, s.zone): s.cidr for s in subnets(Network.model_validate({"zones": zones}))}
        for zones in (["us-east-1a", "us-east-1b"], ["us-east-1a", "us-east-1b", "us-east-1c"])
    )
    assert two.items() < three.items()
