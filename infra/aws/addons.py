"""Add-ons that are not well before there are nodes: names, volumes, and what is wrong with a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.aws.addon import addon
from infra.aws.identity import Workload
from infra.aws.permissions.statement import Statement
from infra.config.aws.cluster import Addons as AddonsConfig

EBS_CSI = "ebs-csi"
EBS_POLICY = "service-role/AmazonEBSCSIDriverPolicy"


@dataclass(frozen=True)
class AddonsArgs:
    """`cluster` is its name, `nodes` must be there before, `associations` are Identity's."""

    config: AddonsConfig
    cluster: pulumi.Input[str]
    nodes: Sequence[pulumi.Resource]
    associations: Mapping[str, pulumi.Resource]


class Addons(pulumi.ComponentResource):
    """`ready` is what pods with names to look up and volumes to mount wait for."""

    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: AddonsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Addons", name, None, opts)
        config, nodes = args.config, list(args.nodes)
        # A controller that starts before its association never has credentials.
        associated = [*nodes, args.associations[EBS_CSI]]
        self.ready = [
            addon(name, "coredns", config.coredns, args.cluster, self, nodes),
            addon(name, "aws-ebs-csi-driver", config.ebs_csi, args.cluster, self, associated),
            addon(name, "eks-node-monitoring-agent", config.node_monitoring, args.cluster, self, nodes),
        ]
        self.register_outputs({})


def addon_workloads(partition: pulumi.Input[str], key: pulumi.Input[str] | None = None) -> Mapping[str, Workload]:
    """Add-ons that speak to AWS, for Identity; with the `key`, volumes may be encrypted with it."""
    managed = [pulumi.Output.concat("arn:", partition, ":iam::aws:policy/", EBS_POLICY)]
    statements = list(_encrypting(key)) if key is not None else []
    return {EBS_CSI: Workload("kube-system", "ebs-csi-controller-sa", statements, managed)}


def _encrypting(key: pulumi.Input[str]) -> Sequence[Statement]:
    """Amazon EKS User Guide, "Store Kubernetes volumes with Amazon EBS": a customer managed key."""
    uses = ["kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey"]
    granted = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [Statement("Volumes", uses, [key]), Statement("VolumeGrants", ["kms:CreateGrant"], [key], granted)]
