"""The role of nodes: to join the cluster, to pull images, to hand credentials to pods. No more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import iam

from infra.aws.permissions.statement import Place, Statement, document, trusting
from infra.aws.registry import CACHE

# Addresses of pods are vpc-cni's own role's. There is no SSM agent's policy: a node is looked into by `kubectl debug`.
POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")


@dataclass(frozen=True)
class NodeRoleArgs:
    """`place` is where its images lie."""

    place: Place


class NodeRole(pulumi.ComponentResource):
    """`given` must be there as long as there are nodes."""

    arn: pulumi.Output[str]
    role_name: pulumi.Output[str]
    given: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:NodeRole", name, None, opts)
        place, child = args.place, pulumi.ResourceOptions(parent=self)
        role = iam.Role(
            name,
            path="/diphase/",
            description="nodes of the cluster",
            assume_role_policy=trusting("ec2.amazonaws.com"),
            opts=child,
        )
        # The first pull through a cache makes its repository (Amazon ECR User Guide, "IAM permissions required to sync
        # an upstream registry"); to import the image is in the managed policy.
        cache = Statement("Cache", ["ecr:CreateRepository"], [place.arn("ecr", f"repository/{CACHE}/*")])
        self.given = [
            *(
                iam.RolePolicyAttachment(
                    f"{name}-{policy}",
                    role=role.name,
                    policy_arn=pulumi.Output.concat("arn:", place.partition, ":iam::aws:policy/", policy),
                    opts=child,
                )
                for policy in POLICIES
            ),
            iam.RolePolicy(name, role=role.name, policy=document([cache]), opts=child),
        ]
        self.arn, self.role_name = role.arn, role.name
        self.register_outputs({"arn": self.arn})
