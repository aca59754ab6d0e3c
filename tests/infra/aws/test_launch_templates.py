"""How instances start: interfaces by instance type, disks, metadata, tags, and the capacity that was paid for."""

from __future__ import annotations

import base64
import email
from typing import Any

import pulumi
import pytest
import yaml

from infra.aws.efa import interfaces
from infra.aws.launch_templates import LaunchTemplateArgs, launch_template
from infra.config.aws.capacity import GpuPool, SystemPool
from infra.hardware import INSTANCE_TYPES
from tests.infra.aws.pools import BLOCK, GROUPS, KEY, RESERVED, TAGS, capacity, pool
from tests.infra.aws.recorder import Graph, record
from tests.infra.aws.terraform import Provider


def declared(provider: Provider, wanted: SystemPool | GpuPool, group: str | None = None) -> Graph:
    args = LaunchTemplateArgs("n", wanted, GROUPS, KEY, TAGS, group)
    return record(provider, lambda: launch_template(args, pulumi.ResourceOptions()))


def template(provider: Provider, **prefill: Any) -> dict[str, Any]:
    found = capacity({"prefill": pool(**prefill)}).prefill
    assert found is not None
    graph = declared(provider, found)
    assert list(graph.faults(provider)) == []
    return graph.one("LaunchTemplate").inputs


@pytest.mark.parametrize("name", sorted(INSTANCE_TYPES))
def test_every_instance_type_starts_with_its_efa_interfaces_and_one_with_addresses(name: str) -> None:
    primary, *fabric = interfaces(name)
    assert (primary.card, primary.device, primary.kind) == (0, 0, "interface")
    assert len(fabric) == INSTANCE_TYPES[name].efa_interfaces
    assert len({one.card for one in fabric}) == len(fabric), "one with EFA on each card"
    assert all(one.kind == "efa-only" and one.device == (0 if one.card else 1) for one in fabric)


def test_cards_are_those_that_take_efa() -> None:
    """Card 0 of a P6-B300 takes none, so that sixteen begin at card 1."""
    assert [one.card for one in interfaces("p6-b300.48xlarge")] == [0, *range(1, 17)]
    assert [one.card for one in interfaces("p6-b200.48xlarge")] == [0, *range(8)]
    assert [one.card for one in interfaces("p5.48xlarge")] == [0, *range(32)]
    assert [(one.card, one.device) for one in interfaces("g6e.12xlarge")] == [(0, 0), (0, 1)]
    assert len(list(interfaces("m7i.xlarge"))) == 1


def test_interfaces_are_in_their_security_groups_and_none_is_public(provider: Provider) -> None:
    primary, *fabric = template(provider, instance_type="p5en.48xlarge")["networkInterfaces"]
    assert primary["securityGroups"] == [GROUPS["nodes"]]
    assert primary["associatePublicIpAddress"] == "false"
    assert len(fabric) == 16
    assert all(one["securityGroups"] == [GROUPS["efa"]] for one in fabric)
    assert all(one["interfaceType"] == "efa-only" and "associatePublicIpAddress" not in one for one in fabric)


def test_metadata_is_for_the_node_only(provider: Provider) -> None:
    options = template(provider)["metadataOptions"]
    assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)


def test_the_root_disk_is_encrypted_with_the_regions_key(provider: Provider) -> None:
    [mapping] = template(provider, diskGib=800, diskThroughput=500, diskIops=5000)["blockDeviceMappings"]
    disk = mapping["ebs"]
    assert (disk["encrypted"], disk["kmsKeyId"], disk["volumeType"]) == ("true", KEY, "gp3")
    assert (disk["volumeSize"], disk["throughput"], disk["iops"]) == (800, 500, 5000)


def test_tags_reach_volumes_and_interfaces(provider: Provider) -> None:
    """Reported of others as pulumi-aws#1655."""
    found = {one["resourceType"]: one["tags"] for one in template(provider)["tagSpecifications"]}
    assert set(found) == {"instance", "volume", "network-interface"}
    assert all(tags.items() >= TAGS.items() for tags in found.values())


def test_a_reservation_is_named_by_the_template(provider: Provider) -> None:
    """Reported of others: zalando/kubernetes-on-aws#11623, eksctl#8542."""
    found = template(provider, **RESERVED)
    target = found["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target == {"capacityReservationId": RESERVED["reservationId"]}
    assert "instanceMarketOptions" not in found


def test_a_block_is_a_market_of_its_own(provider: Provider) -> None:
    found = template(provider, **BLOCK)
    assert found["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert "capacityReservationTarget" in found["capacityReservationSpecification"]
    assert found["instanceType"] == "p5.48xlarge"


def test_what_is_not_reserved_names_no_reservation(provider: Provider) -> None:
    found = template(provider, purchase="spot")
    assert "capacityReservationSpecification" not in found
    assert "instanceMarketOptions" not in found, "EKS asks for spot itself"


def node_config(encoded: str) -> dict[str, Any]:
    """What nodeadm would read."""
    message = email.message_from_bytes(base64.b64decode(encoded))
    [part] = message.get_payload()
    assert isinstance(part, email.message.Message)
    assert part.get_content_type() == "application/node.eks.aws"
    found: dict[str, Any] = yaml.safe_load(str(part.get_payload()))
    return found


def test_gpu_nodes_put_their_own_disks_together(provider: Provider) -> None:
    found = node_config(template(provider)["userData"])
    assert (found["apiVersion"], found["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert found["spec"]["instance"]["localStorage"] == {"strategy": "RAID0"}
    system = declared(provider, capacity().system)
    assert list(system.faults(provider)) == []
    spec = node_config(system.one("LaunchTemplate").inputs["userData"])["spec"]
    assert spec == {"kubelet": {"config": {"maxPods": 110}}}
