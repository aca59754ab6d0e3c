"""A bucket as all of ours are: versioned, encrypted, closed to the public, for TLS only; old versions have an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import s3

from infra.aws.permissions.statement import ANY, Statement, document

# An upload that was begun and never ended is paid for and not seen.
ABORT_DAYS = 3


@dataclass(frozen=True)
class BucketArgs:
    """`bucket` is its name. Without a `key` (an ARN) it is encrypted with S3's own, which log deliveries need."""

    bucket: pulumi.Input[str]
    protect: bool
    noncurrent_days: int
    key: pulumi.Input[str] | None = None
    expire_days: int | None = None
    logs: pulumi.Input[str] | None = None  # the bucket that keeps its access log
    statements: Sequence[Statement] = ()  # of its policy, beside those that all have; resources are filled in


class Bucket(pulumi.ComponentResource):
    """`name` and `arn` are known only when the bucket is as it is to be: nothing is put into it before."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Bucket", name, None, opts)
        self._name, self._args = name, args
        held = pulumi.ResourceOptions(parent=self, protect=args.protect)
        self._bucket = s3.Bucket(name, bucket=args.bucket, force_destroy=not args.protect, opts=held)
        set_up = [*self._closed(), *self._kept(), self._policy()]
        self.name = pulumi.Output.all(self._bucket.bucket, *[one.id for one in set_up]).apply(
            lambda found: str(found[0])
        )
        self.arn = self._bucket.arn
        self.register_outputs({"name": self.name, "arn": self.arn})

    @property
    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self)

    def _closed(self) -> list[pulumi.CustomResource]:
        """Nobody's but the account's, and encrypted."""
        args = self._args
        rule = s3.BucketServerSideEncryptionConfigurationRuleArgs(
            apply_server_side_encryption_by_default=(
                s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                    sse_algorithm="aws:kms" if args.key else "AES256", kms_master_key_id=args.key
                )
            ),
            # One call of KMS for many objects, not one for each.
            bucket_key_enabled=bool(args.key),
        )
        ownership = s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced")
        return [
            s3.BucketPublicAccessBlock(
                self._name,
                bucket=self._bucket.id,
                block_public_acls=True,
                block_public_policy=True,
                ignore_public_acls=True,
                restrict_public_buckets=True,
                opts=self._child,
            ),
            s3.BucketOwnershipControls(self._name, bucket=self._bucket.id, rule=ownership, opts=self._child),
            s3.BucketServerSideEncryptionConfiguration(
                self._name, bucket=self._bucket.id, rules=[rule], opts=self._child
            ),
        ]

    def _kept(self) -> list[pulumi.CustomResource]:
        """How long it keeps what it holds, and who came."""
        args = self._args
        versioning = s3.BucketVersioning(
            self._name,
            bucket=self._bucket.id,
            versioning_configuration=s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=self._child,
        )
        lifecycle = s3.BucketLifecycleConfiguration(
            self._name,
            bucket=self._bucket.id,
            rules=[_rule(args)],
            # Rules on versions that are replaced need versioning.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[versioning]),
        )
        found: list[pulumi.CustomResource] = [versioning, lifecycle]
        if args.logs is not None:
            prefix = f"{self._name}/"
            found.append(
                s3.BucketLogging(
                    self._name,
                    bucket=self._bucket.id,
                    target_bucket=args.logs,
                    target_prefix=prefix,
                    opts=self._child,
                )
            )
        return found

    def _policy(self) -> s3.BucketPolicy:
        both = [self._bucket.arn, pulumi.Output.concat(self._bucket.arn, "/*")]
        denied = [
            Statement("TlsOnly", ["s3:*"], both, {"Bool": {"aws:SecureTransport": "false"}}, "Deny", ANY),
            Statement("NewTlsOnly", ["s3:*"], both, {"NumericLessThan": {"s3:TlsVersion": "1.2"}}, "Deny", ANY),
        ]
        filled = [
            Statement(one.sid, one.actions, both[1:], one.conditions, one.effect, one.principal)
            for one in self._args.statements
        ]
        return s3.BucketPolicy(
            self._name, bucket=self._bucket.id, policy=document([*denied, *filled]), opts=self._child
        )


def _rule(args: BucketArgs) -> s3.BucketLifecycleConfigurationRuleArgs:
    return s3.BucketLifecycleConfigurationRuleArgs(
        id="end",
        status="Enabled",
        filter=s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
        abort_incomplete_multipart_upload=s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
            days_after_initiation=ABORT_DAYS
        ),
        noncurrent_version_expiration=s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
            noncurrent_days=args.noncurrent_days
        ),
        expiration=(
            s3.BucketLifecycleConfigurationRuleExpirationArgs(days=args.expire_days) if args.expire_days else None
        ),
    )
