"""What Karpenter's controller may do: start nodes that carry its cluster's tag, and end only those.

As Karpenter's own CloudFormation template has it (karpenter.sh, "Reference: CloudFormation").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi

from infra.aws.permissions import disks
from infra.aws.permissions.statement import Conditions, Place, Statement

READS = (
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
    "pricing:GetProducts",
)
QUEUE = ("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage")
PROFILES = ("iam:AddRoleToInstanceProfile", "iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile")
STARTED = ("fleet/*", "instance/*", "volume/*", "network-interface/*", "launch-template/*", "spot-instances-request/*")
NODE_POOL = "karpenter.sh/nodepool"


def statements(
    place: Place,
    cluster: pulumi.Input[str],
    node_role: pulumi.Input[str],
    queue: pulumi.Input[str],
    key: pulumi.Input[str],
) -> Iterator[Statement]:
    """Its statements; `node_role`, `queue` and `key` are ARNs, of the nodes' role, of the queue of interruptions and of
    the disks' key."""
    owned, requested = _owned(cluster, "Resource"), _owned(cluster, "Request")
    anyhow: Mapping[str, str] = {f"aws:ResourceTag/{NODE_POOL}": "*"}
    used = ("security-group/*", "subnet/*", "capacity-reservation/*", "placement-group/*")
    parts = [place.arn("ec2", part) for part in used]
    images = [place.public_arn("ec2", "image/*"), place.public_arn("ec2", "snapshot/*")]
    start = ["ec2:RunInstances", "ec2:CreateFleet"]
    started = [place.arn("ec2", part) for part in STARTED]
    yield Statement("Read", READS)
    yield Statement("StartWith", start, [*images, *parts])
    templates = [place.arn("ec2", "launch-template/*")]
    yield Statement("StartFrom", start, templates, {"StringEquals": owned, "StringLike": anyhow})
    asked: Conditions = {"StringEquals": requested, "StringLike": {f"aws:RequestTag/{NODE_POOL}": "*"}}
    yield Statement("Start", [*start, "ec2:CreateLaunchTemplate"], started, asked)
    creating = [action.partition(":")[2] for action in (*start, "ec2:CreateLaunchTemplate")]
    made = requested.apply(lambda tags: {**tags, "ec2:CreateAction": creating})
    yield Statement("TagNew", ["ec2:CreateTags"], started, {"StringEquals": made})
    end = ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"]
    ended = [place.arn("ec2", part) for part in ("instance/*", "launch-template/*")]
    yield Statement("End", end, ended, {"StringEquals": owned, "StringLike": anyhow})
    instances = [place.arn("ec2", "instance/*")]
    yield Statement("TagNode", ["ec2:CreateTags"], instances, {"StringEquals": owned, "StringLike": anyhow})
    yield Statement("Interruptions", QUEUE, [queue])
    passed = {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com"]}}
    yield Statement("NodeRole", ["iam:PassRole"], [node_role], passed)
    profiles = [place.global_arn("iam", "instance-profile/*")]
    # A new one has no tags yet: it is held to those that it is to have.
    yield Statement("NewProfile", ["iam:CreateInstanceProfile"], profiles, {"StringEquals": requested})
    both = pulumi.Output.all(owned, requested).apply(lambda tags: {**tags[0], **tags[1]})
    yield Statement("TagProfile", ["iam:TagInstanceProfile"], profiles, {"StringEquals": both})
    yield Statement("Profiles", PROFILES, profiles, {"StringEquals": owned})
    yield Statement("ReadProfiles", ["iam:GetInstanceProfile"], profiles)
    yield Statement("ListProfiles", ["iam:ListInstanceProfiles"])
    yield Statement("Cluster", ["eks:DescribeCluster"], [place.arn("eks", pulumi.Output.concat("cluster/", cluster))])
    images_of = place.public_arn("ssm", "parameter/aws/service/*")
    yield Statement("PinnedImages", ["ssm:GetParameter"], [images_of])
    yield from disks.encrypted(key, place)


def _owned(cluster: pulumi.Input[str], where: str) -> pulumi.Output[Mapping[str, Any]]:
    """The condition that a resource, or a request, carries the cluster's tag."""
    return pulumi.Output.from_input(cluster).apply(
        lambda name: {f"aws:{where}Tag/kubernetes.io/cluster/{name}": "owned"}
    )
