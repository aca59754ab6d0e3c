"""What makes a bucket fit for state, step by step: looks at what is there, and names only what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import boto3
from botocore.exceptions import ClientError

from infra.aws.buckets import ABORT_DAYS
from infra.aws.permissions.statement import VERSION
from scripts.faults import OperationFailed
from scripts.state.address import ALIAS
from scripts.state.locks import LIMITS

# Each operation writes the state anew. Old versions are what saves a state that was broken: three months of them.
OLD_DAYS = 90
CLOSED = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
LIFECYCLE = {
    "ID": "end",
    "Status": "Enabled",
    "Filter": {"Prefix": ""},
    "NoncurrentVersionExpiration": {"NoncurrentDays": OLD_DAYS},
    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": ABORT_DAYS},
}


class Step(NamedTuple):
    """Something to be done: a sentence for people, and what does it."""

    what: str
    do: Callable[[], object]


class Home:
    """The key and the bucket of an account's region; `steps` looks and changes nothing. Raises ClientError."""

    def __init__(self, bucket: str, region: str, account: str, session: boto3.Session) -> None:
        self.bucket, self.region, self.account = bucket, region, account
        self._arn = f"arn:{session.get_partition_for_region(region)}:s3:::{bucket}"
        self._s3: Any = session.client("s3", region_name=region, config=LIMITS)
        self._kms: Any = session.client("kms", region_name=region, config=LIMITS)

    def close(self) -> None:
        self._s3.close()
        self._kms.close()

    def steps(self) -> Iterator[Step]:
        """What is to be done, in order; nothing where all is as it should be."""
        key = self._key()
        if key is None:
            yield Step(f"make a key of KMS, renewed each year, as {ALIAS}", self._make_key)
        elif not self._kms.get_key_rotation_status(KeyId=key)["KeyRotationEnabled"]:
            yield Step(f"have {ALIAS} renewed each year", lambda: self._kms.enable_key_rotation(KeyId=key))
        there = self._there()
        if not there:
            yield Step(f"make the bucket {self.bucket} in {self.region}", self._make_bucket)
        yield from self._settings(key, there)

    def _settings(self, key: str | None, there: bool) -> Iterator[Step]:
        ours, s3 = self._asked, self._s3
        closed = ours(s3.get_public_access_block, "NoSuchPublicAccessBlockConfiguration") if there else {}
        if not all(closed.get("PublicAccessBlockConfiguration", {}).get(name) for name in CLOSED):
            yield Step("block public access", self._close)
        if not there or ours(s3.get_bucket_versioning).get("Status") != "Enabled":
            yield Step("keep old versions", self._version)
        rules = ours(s3.get_bucket_encryption, "ServerSideEncryptionConfigurationNotFoundError") if there else {}
        if key is None or key not in json.dumps(rules):
            yield Step(f"encrypt it with {ALIAS}", self._encrypt)
        policy = ours(s3.get_bucket_policy, "NoSuchBucketPolicy").get("Policy", "{}") if there else "{}"
        if not all(one in json.loads(policy).get("Statement", []) for one in self._tls()):
            yield Step("refuse connections without TLS 1.2", lambda: self._secure(json.loads(policy)))
        lifecycle = ours(s3.get_bucket_lifecycle_configuration, "NoSuchLifecycleConfiguration") if there else {}
        found = lifecycle.get("Rules", [])
        if not any("NoncurrentVersionExpiration" in rule and rule["Status"] == "Enabled" for rule in found):
            yield Step(f"end old versions after {OLD_DAYS} days", lambda: self._end(found))

    def _asked(self, call: Callable[..., Any], absent: str = "") -> Any:
        """An answer about the bucket; empty where S3 says by the code `absent` that nothing is set."""
        try:
            return call(Bucket=self.bucket)
        except ClientError as error:
            if error.response["Error"]["Code"] == absent:
                return {}
            raise

    def _key(self) -> str | None:
        """The ARN of the key behind the alias; raises OperationFailed for one that cannot be used."""
        try:
            found = self._kms.describe_key(KeyId=ALIAS)["KeyMetadata"]
        except self._kms.exceptions.NotFoundException:
            return None
        if not found["Enabled"]:
            raise OperationFailed(
                f"the key behind {ALIAS} is {found['KeyState']}, and what it encrypted cannot be read: "
                f"`aws kms cancel-key-deletion` and `enable-key --key-id {found['KeyId']}` bring it back"
            )
        return str(found["Arn"])

    def _there(self) -> bool:
        try:
            self._s3.head_bucket(Bucket=self.bucket, ExpectedBucketOwner=self.account)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == 404:
                return False
            if status == 403:
                raise OperationFailed(
                    f"the bucket {self.bucket} is another account's, or these credentials may not see it: look at the "
                    "permissions s3:ListBucket, or name another by PULUMI_BACKEND_URL=s3://NAME?region=…"
                ) from None
            raise
        return True

    def _make_key(self) -> None:
        made = self._kms.create_key(Description="state of Diphase's stacks, and their secrets")["KeyMetadata"]["KeyId"]
        self._kms.enable_key_rotation(KeyId=made)
        self._kms.create_alias(AliasName=ALIAS, TargetKeyId=made)

    def _make_bucket(self) -> None:
        # S3 knows us-east-1 as the place of those that name none (CreateBucket, LocationConstraint).
        place = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
        more = {"CreateBucketConfiguration": place} if place else {}
        self._s3.create_bucket(Bucket=self.bucket, ObjectOwnership="BucketOwnerEnforced", **more)

    def _close(self) -> None:
        self._s3.put_public_access_block(Bucket=self.bucket, PublicAccessBlockConfiguration=dict.fromkeys(CLOSED, True))

    def _version(self) -> None:
        self._s3.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})

    def _encrypt(self) -> None:
        default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": self._key()}
        rule = {"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}
        self._s3.put_bucket_encryption(Bucket=self.bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})

    def _secure(self, policy: dict[str, Any]) -> None:
        ours = self._tls()
        names = {one["Sid"] for one in ours}
        kept = [one for one in policy.get("Statement", []) if one.get("Sid") not in names]
        document = {"Version": VERSION, "Statement": [*kept, *ours]}
        self._s3.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(document))

    def _end(self, rules: list[dict[str, Any]]) -> None:
        self._s3.put_bucket_lifecycle_configuration(
            Bucket=self.bucket,
            LifecycleConfiguration={"Rules": [*(one for one in rules if one.get("ID") != LIFECYCLE["ID"]), LIFECYCLE]},
        )

    def _tls(self) -> list[dict[str, Any]]:
        """As infra.aws.buckets has it."""
        unsafe = {
            "TlsOnly": {"Bool": {"aws:SecureTransport": "false"}},
            "NewTlsOnly": {"NumericLessThan": {"s3:TlsVersion": "1.2"}},
        }
        return [
            {
                "Sid": sid,
                "Effect": "Deny",
                "Principal": "*",
                "Action": ["s3:*"],
                "Resource": [self._arn, f"{self._arn}/*"],
                "Condition": condition,
            }
            for sid, condition in unsafe.items()
        ]
