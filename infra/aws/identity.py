"""Who may do what: a role for each workload, taken on through EKS Pod Identity, none of them beyond one boundary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import eks, iam

from infra.aws.permissions.statement import Place, Statement, document, pod_identity_trust

# IAM User Guide, "IAM and AWS STS quotas": characters of a managed policy, white space not counted.
BOUNDARY_CHARACTERS = 6144


@dataclass(frozen=True)
class Workload:
    """Pods of one service account, and what they may do."""

    namespace: str
    service_account: str
    statements: Sequence[Statement] = ()
    managed: Sequence[pulumi.Input[str]] = ()  # ARNs of AWS's own policies


@dataclass(frozen=True)
class IdentityArgs:
    """`cluster` is the EKS cluster's name, `agent` its add-on eks-pod-identity-agent, which hands out credentials."""

    cluster: pulumi.Input[str]
    workloads: Mapping[str, Workload]
    place: Place
    agent: pulumi.Resource | None = None
    path: str = "/diphase/"


class Identity(pulumi.ComponentResource):
    """Roles and their associations. `associations` must be there before the pods that they are for: a pod that starts
    earlier has no credentials for as long as it lives (EKS User Guide, "How EKS Pod Identity works")."""

    boundary: pulumi.Output[str]
    associations: Mapping[str, pulumi.Resource]
    roles: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Identity", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        policy = iam.Policy(
            f"{name}-boundary",
            path=args.path,
            description="the most that any workload of the stack may do",
            policy=document(boundary(args.workloads.values(), args.place)),
            opts=self._child,
        )
        self.boundary = policy.arn
        made = {key: self._workload(key, workload) for key, workload in args.workloads.items()}
        self.roles = {key: role.arn for key, (role, _) in made.items()}
        self.associations = {key: association for key, (_, association) in made.items()}
        self.register_outputs({"boundary": self.boundary, "roles": self.roles})

    def _workload(self, key: str, workload: Workload) -> tuple[iam.Role, eks.PodIdentityAssociation]:
        name = f"{self._name}-{key}"
        role = iam.Role(
            name,
            path=self._args.path,
            description=f"pods of {workload.namespace}/{workload.service_account}",
            assume_role_policy=pod_identity_trust(),
            permissions_boundary=self.boundary,
            opts=self._child,
        )
        under = pulumi.ResourceOptions(parent=self)
        given: list[pulumi.Resource] = []
        if workload.statements:
            given.append(iam.RolePolicy(name, role=role.name, policy=document(workload.statements), opts=under))
        for number, arn in enumerate(workload.managed):
            attached = iam.RolePolicyAttachment(f"{name}-{number}", role=role.name, policy_arn=arn, opts=under)
            given.append(attached)
        agent = [self._args.agent] if self._args.agent else []
        association = eks.PodIdentityAssociation(
            name,
            cluster_name=self._args.cluster,
            namespace=workload.namespace,
            service_account=workload.service_account,
            role_arn=role.arn,
            # Not before it may do what its pods need, and not after the agent is gone.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*given, *agent]),
        )
        return role, association


def boundary(workloads: Iterable[Workload], place: Place) -> list[Statement]:
    """What every role is held to: the actions that some workload has, in this region or in services that have none,
    and nothing by which a role could give itself more.

    Actions of AWS's managed policies are in MANAGED, by the policies' names.
    """
    workloads = list(workloads)
    every = {action for workload in workloads for one in workload.statements for action in one.actions}
    if any(workload.managed for workload in workloads):
        every |= {action for actions in MANAGED.values() for action in actions}
    worldwide = sorted(action for action in every if action.partition(":")[0] in WORLDWIDE)
    here = sorted(every.difference(worldwide))
    return [
        Statement("Here", here, conditions={"StringEquals": {"aws:RequestedRegion": place.region}}),
        *([Statement("Worldwide", worldwide)] if worldwide else []),
    ]


# Services whose requests have us-east-1 as their region, or none (IAM User Guide, aws:RequestedRegion).
WORLDWIDE = frozenset({"iam", "route53", "sts", "pricing"})
# What AmazonEBSCSIDriverPolicy allows (AWS Managed Policy Reference).
MANAGED = {
    "service-role/AmazonEBSCSIDriverPolicy": (
        "ec2:AttachVolume",
        "ec2:CreateSnapshot",
        "ec2:CreateTags",
        "ec2:CreateVolume",
        "ec2:DeleteSnapshot",
        "ec2:DeleteTags",
        "ec2:DeleteVolume",
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeInstances",
        "ec2:DescribeSnapshots",
        "ec2:DescribeTags",
        "ec2:DescribeVolumes",
        "ec2:DescribeVolumesModifications",
        "ec2:DetachVolume",
        "ec2:EnableFastSnapshotRestores",
        "ec2:ModifyVolume",
    )
}
