"""Addresses of pods: vpc-cni, in subnets of their own, with prefixes and network policies, and what it may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import eks, iam

from infra.aws.addon import addon
from infra.aws.permissions.statement import Place, pod_identity_trust

POLICY = "AmazonEKS_CNI_Policy"
# Of the add-on's container; values are text (amazon-vpc-cni-k8s, README.md).
ENVIRONMENT: Mapping[str, str] = {
    "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "true",
    "ENI_CONFIG_LABEL_DEF": "topology.kubernetes.io/zone",  # a node's zone is its ENIConfig's name
    "ENABLE_PREFIX_DELEGATION": "true",
    "WARM_PREFIX_TARGET": "1",  # a prefix has 16 addresses (EKS best practices, "Prefix mode")
}


@dataclass(frozen=True)
class PodNetworkArgs:
    """`cluster` is its name, `subnets` the pods' by zone, `group` the security group of pods; both are ids."""

    place: Place
    version: str
    cluster: pulumi.Input[str]
    subnets: Mapping[str, pulumi.Input[str]]
    group: pulumi.Input[str]


class PodNetwork(pulumi.ComponentResource):
    """`addon` must be there before the first node: a node that joins earlier gives its pods addresses of its own
    subnet."""

    addon: eks.Addon

    def __init__(self, name: str, args: PodNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:PodNetwork", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = iam.Role(
            name,
            path="/diphase/",
            description="pods of kube-system/aws-node",
            assume_role_policy=pod_identity_trust(),
            opts=child,
        )
        arn = pulumi.Output.concat("arn:", args.place.partition, ":iam::aws:policy/", POLICY)
        allowed = iam.RolePolicyAttachment(name, role=role.name, policy_arn=arn, opts=child)
        association = eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster,
            namespace="kube-system",
            service_account="aws-node",
            role_arn=role.arn,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[allowed]),
        )
        values = {
            "env": dict(ENVIRONMENT),
            "enableNetworkPolicy": "true",
            "eniConfig": {
                "create": True,
                "region": args.place.region,
                "subnets": {zone: {"id": one, "securityGroups": [args.group]} for zone, one in args.subnets.items()},
            },
        }
        self.addon = addon(name, "vpc-cni", args.version, args.cluster, self, [association], values)
        self.register_outputs({})
