"""What somebody needs who starts instances, or makes volumes, with disks encrypted by a key of ours.

The key's policy leaves it to IAM (infra/aws/encryption.py), so it is the caller's role that must allow what EC2 then
does on its behalf (Amazon EBS User Guide, "Requirements for Amazon EBS encryption", permissions for IAM principals;
reported of others as karpenter-provider-aws#1407: instances end as soon as they begin).
"""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from infra.aws.permissions.statement import Conditions, Place, Statement

USES = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


def encrypted(key: pulumi.Input[str], place: Place) -> Iterator[Statement]:
    """Statements for a key's ARN: through EC2 only, and grants only to AWS itself."""
    through: Conditions = {
        "StringEquals": {"kms:ViaService": pulumi.Output.concat("ec2.", place.region, ".amazonaws.com")}
    }
    yield Statement("Disks", USES, [key], through)
    grants: Conditions = {**through, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    yield Statement("DiskGrants", ["kms:CreateGrant"], [key], grants)
