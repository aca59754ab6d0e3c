"""How an instance of a pool starts: interfaces, disks, metadata, tags, and out of which capacity it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2

from infra.aws.efa import interfaces
from infra.aws.user_data import user_data
from infra.config.aws.capacity import GpuPool, SystemPool

ROOT = "/dev/xvda"  # of Amazon Linux 2023
# What EC2 makes with an instance and tags only if the template says so.
TAGGED = ("instance", "volume", "network-interface")


@dataclass(frozen=True)
class LaunchTemplateArgs:
    """`groups` are ids of security groups, of which nodes and efa are used; `key` is the ARN of the disks' key."""

    name: str
    pool: SystemPool | GpuPool
    groups: Mapping[str, pulumi.Input[str]]
    key: pulumi.Input[str]
    tags: Mapping[str, str]
    placement_group: pulumi.Input[str] | None = None


def launch_template(args: LaunchTemplateArgs, opts: pulumi.ResourceOptions) -> ec2.LaunchTemplate:
    """The launch template of a pool. It names no image: EKS takes that of the node group's release."""
    pool = args.pool
    placement = ec2.LaunchTemplatePlacementArgs(group_name=args.placement_group) if args.placement_group else None
    block = isinstance(pool, GpuPool) and pool.purchase == "block"
    return ec2.LaunchTemplate(
        args.name,
        # Here and not in the node group: a capacity block asks for that (EKS User Guide, "Create a managed node group
        # with Capacity Blocks for ML"), and nowhere may it be in both.
        instance_type=pool.instance_type,
        user_data=user_data(local_disks=isinstance(pool, GpuPool)),
        network_interfaces=list(_interfaces(args)),
        block_device_mappings=[_root(args)],
        # One hop: the node itself, but not its pods, which have Pod Identity.
        metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
        ),
        tag_specifications=[
            ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags={**args.tags, "Name": args.name})
            for kind in TAGGED
        ],
        placement=placement,
        capacity_reservation_specification=_reservation(pool),
        instance_market_options=(
            ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block") if block else None
        ),
        opts=opts,
    )


def _interfaces(args: LaunchTemplateArgs) -> Iterator[ec2.LaunchTemplateNetworkInterfaceArgs]:
    for one in interfaces(args.pool.instance_type):
        primary = one.kind == "interface"
        yield ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=one.card,
            device_index=one.device,
            interface_type=one.kind,
            security_groups=[args.groups["nodes" if primary else "efa"]],
            delete_on_termination="true",
            # Of the one with addresses only: EC2 refuses it for the others.
            associate_public_ip_address="false" if primary else None,
        )


def _root(args: LaunchTemplateArgs) -> ec2.LaunchTemplateBlockDeviceMappingArgs:
    pool = args.pool
    disk = ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
        volume_type="gp3",
        volume_size=pool.disk_gib,
        throughput=pool.disk_throughput,
        iops=pool.disk_iops,
        encrypted="true",
        kms_key_id=args.key,
        delete_on_termination="true",
    )
    return ec2.LaunchTemplateBlockDeviceMappingArgs(device_name=ROOT, ebs=disk)


def _reservation(pool: SystemPool | GpuPool) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    """The reservation or block that was paid for: instances that don't name it leave it idle."""
    if not isinstance(pool, GpuPool) or pool.reservation_id is None:
        return None
    target = ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=pool.reservation_id
    )
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)
