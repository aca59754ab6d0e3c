"""The region's own key: what it keeps is encrypted with it, and its logs and alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import kms

from infra.aws.permissions.statement import ANY, Conditions, Place, Statement, document

# Who publishes to SNS.
ALARMS = ["cloudwatch.amazonaws.com", "budgets.amazonaws.com", "events.amazonaws.com"]
LUSTRE_ROLE = "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access"
USES = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:GenerateDataKey", "kms:DescribeKey"]
# Auto Scaling makes nodes, whose disks are encrypted, by its service-linked role (EC2 Auto Scaling User Guide,
# "Required AWS KMS key policy for use with encrypted volumes").
SCALING_ROLE = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"


@dataclass(frozen=True)
class EncryptionArgs:
    """`deletion_days` is how long a deleted key can still be had back; `lustre` whether FSx reads and writes S3."""

    place: Place
    deletion_days: int
    protect: bool
    lustre: bool = False


class Encryption(pulumi.ComponentResource):
    """`key` is the ARN of the key."""

    key: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Encryption", name, None, opts)
        key = kms.Key(
            name,
            description="what the region keeps, and its logs",
            enable_key_rotation=True,
            deletion_window_in_days=args.deletion_days,
            policy=document(_policy(args.place, args.lustre)),
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        alias = f"alias/diphase/{pulumi.get_stack()}"
        kms.Alias(name, name=alias, target_key_id=key.key_id, opts=pulumi.ResourceOptions(parent=self))
        self.key = key.arn
        self.register_outputs({"key": self.key})


def _policy(place: Place, lustre: bool) -> list[Statement]:
    """The account decides by IAM who may use the key; beside it, services on behalf of the account."""
    ours = {"StringEquals": {"aws:SourceAccount": place.account}}
    found = [
        Statement("Account", ["kms:*"], principal={"AWS": place.global_arn("iam", "root")}),
        Statement(
            "Logs",
            USES,
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": place.arn("logs", "log-group:*")}},
            principal={"Service": pulumi.Output.concat("logs.", place.region, ".amazonaws.com")},
        ),
        Statement("Alarms", ["kms:Decrypt", "kms:GenerateDataKey"], conditions=ours, principal={"Service": ALARMS}),
    ]
    found += _disks(place)
    if lustre:
        # FSx makes this role, whose name ends with the file system's id, so it can't be named beforehand.
        role = place.global_arn("iam", f"role/aws-service-role/{LUSTRE_ROLE}_*")
        through = {"kms:ViaService": pulumi.Output.concat("s3.", place.region, ".amazonaws.com")}
        conditions = {"ArnLike": {"aws:PrincipalArn": role}, "StringEquals": through}
        found.append(Statement("Lustre", USES, conditions=conditions, principal={"AWS": ANY}))
    return found


def _disks(place: Place) -> Sequence[Statement]:
    # By a condition: as a principal the role would have to exist, and AWS makes it with the account's first group.
    role: Conditions = {"ArnEquals": {"aws:PrincipalArn": place.global_arn("iam", SCALING_ROLE)}}
    grants: Conditions = {**role, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        Statement("Disks", USES, conditions=role, principal={"AWS": ANY}),
        Statement("DiskGrants", ["kms:CreateGrant"], conditions=grants, principal={"AWS": ANY}),
    ]
