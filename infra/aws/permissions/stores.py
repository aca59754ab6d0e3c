"""What reads weights and what keeps KV in S3, with the key that both are encrypted with."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from infra.aws.permissions.statement import Place, Statement


def _objects(bucket: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.concat(bucket, "/*")


def reads(bucket: pulumi.Input[str], key: pulumi.Input[str], place: Place, name: str) -> Iterator[Statement]:
    """Reading what a bucket (its ARN) holds; `key` is the ARN of the key it is encrypted with."""
    yield Statement(f"List{name}", ["s3:ListBucket", "s3:GetBucketLocation"], [bucket])
    yield Statement(f"Read{name}", ["s3:GetObject"], [_objects(bucket)])
    yield _through_s3(f"Decrypt{name}", ["kms:Decrypt"], key, place)


def keeps(bucket: pulumi.Input[str], key: pulumi.Input[str], place: Place, name: str) -> Iterator[Statement]:
    """Reading, writing and deleting what a bucket holds."""
    yield Statement(f"List{name}", ["s3:ListBucket", "s3:GetBucketLocation"], [bucket])
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    yield Statement(f"Keep{name}", actions, [_objects(bucket)])
    yield _through_s3(f"Encrypt{name}", ["kms:Decrypt", "kms:GenerateDataKey"], key, place)


def _through_s3(sid: str, actions: list[str], key: pulumi.Input[str], place: Place) -> Statement:
    # The key opens objects, and nothing else that it may encrypt some day.
    service = pulumi.Output.concat("s3.", place.region, ".amazonaws.com")
    return Statement(sid, actions, [key], {"StringEquals": {"kms:ViaService": service}})
