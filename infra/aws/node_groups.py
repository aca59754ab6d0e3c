"""Nodes that EKS manages: a group for each pool, at the pinned release of its AMI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import eks

from infra.aws.launch_templates import LaunchTemplateArgs, launch_template
from infra.aws.placement import placement_group
from infra.aws.pools import in_zone, kubernetes_version, labels, taints
from infra.config.aws.capacity import RESERVED, Capacity, GpuPool, PoolName, SystemPool

CAPACITY_TYPES = {"onDemand": "ON_DEMAND", "reservation": "ON_DEMAND", "block": "CAPACITY_BLOCK", "spot": "SPOT"}
# EKS waits fifteen minutes for each pod that it drains, one node at a time (EKS User Guide, "Update behavior").
UPDATE_MINUTES = 240


@dataclass(frozen=True)
class NodePoolsArgs:
    """`subnets`, by zone, and `groups`, security groups, are ids. `ready` is what must be there before a node."""

    capacity: Capacity
    cluster: pulumi.Input[str]
    node_role: pulumi.Input[str]
    subnets: Mapping[str, pulumi.Input[str]]
    groups: Mapping[str, pulumi.Input[str]]
    key: pulumi.Input[str]
    tags: Mapping[str, str]
    ready: Sequence[pulumi.Resource] = ()


class NodePools(pulumi.ComponentResource):
    """`groups` by the pools' names; a pool whose nodes Karpenter makes has none."""

    groups: Mapping[str, pulumi.Resource]
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: NodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:NodePools", name, None, opts)
        self._name, self._args = name, args
        pools: dict[PoolName, SystemPool | GpuPool] = {"system": args.capacity.system}
        gpus = args.capacity.gpu_pools
        pools |= {pool: wanted for pool, wanted in gpus.items() if wanted.provisioner == "nodeGroup"}
        self.groups = {pool: self._group(pool, wanted) for pool, wanted in pools.items()}
        self.ready = list(self.groups.values())
        self.register_outputs({})

    def _group(self, pool: PoolName, wanted: SystemPool | GpuPool) -> eks.NodeGroup:
        name, args, child = f"{self._name}-{pool}", self._args, pulumi.ResourceOptions(parent=self)
        close = placement_group(name, wanted, child)
        template = launch_template(
            LaunchTemplateArgs(name, wanted, args.groups, args.key, args.tags, close.name if close else None), child
        )
        purchase = wanted.purchase if isinstance(wanted, GpuPool) else "onDemand"
        return eks.NodeGroup(
            name,
            cluster_name=args.cluster,
            node_role_arn=args.node_role,
            subnet_ids=in_zone(args.subnets, wanted),
            ami_type="AL2023_x86_64_NVIDIA" if isinstance(wanted, GpuPool) else "AL2023_x86_64_STANDARD",
            version=kubernetes_version(wanted),
            release_version=wanted.ami_release,
            capacity_type=CAPACITY_TYPES[purchase],
            launch_template=eks.NodeGroupLaunchTemplateArgs(id=template.id, version=template.latest_version.apply(str)),
            scaling_config=_scaling(wanted),
            update_config=_update(wanted),
            node_repair_config=eks.NodeGroupNodeRepairConfigArgs(enabled=True),
            labels=labels(pool, wanted),
            taints=[
                eks.NodeGroupTaintArgs(key=one.key, value=one.value, effect="NO_SCHEDULE")
                for one in taints(pool, wanted)
            ],
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.ready),
                # The autoscaler decides, once the group is there: an update must not take nodes from it.
                ignore_changes=["scalingConfig.desiredSize"],
                # What is reserved is not there twice.
                delete_before_replace=purchase in RESERVED,
                custom_timeouts=pulumi.CustomTimeouts(update=f"{UPDATE_MINUTES}m"),
            ),
        )


def _scaling(pool: SystemPool | GpuPool) -> eks.NodeGroupScalingConfigArgs:
    nodes = pool.nodes if isinstance(pool, GpuPool) else pool.min
    return eks.NodeGroupScalingConfigArgs(min_size=pool.min, max_size=pool.max, desired_size=nodes)


def _update(pool: SystemPool | GpuPool) -> eks.NodeGroupUpdateConfigArgs:
    """One node at a time. GPUs are seldom to be had beside those that run: the old node goes before the new one comes
    (EKS User Guide, "Understand each phase of node updates", MINIMAL)."""
    strategy = "MINIMAL" if isinstance(pool, GpuPool) else None
    return eks.NodeGroupUpdateConfigArgs(max_unavailable=1, update_strategy=strategy)
