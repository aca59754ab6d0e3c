"""Everything that is kept is encrypted, and moves encrypted where the service leaves a choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.policy.resource import UNKNOWN, Resource, Rule, at, differs, document, each, missing

# By the type: where the key of an encrypted resource stands.
KEYS = {
    "aws:cloudwatch/logGroup:LogGroup": "kmsKeyId",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "kmsKeyId",
    "aws:sns/topic:Topic": "kmsMasterKeyId",
    "aws:elasticache/replicationGroup:ReplicationGroup": "kmsKeyId",
    "aws:amp/workspace:Workspace": "kmsKeyArn",
}


def _has_key(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    key = KEYS[one.type]
    if missing(one.inputs, key):
        yield f"has no {key}: give it the region's key"


def _queue(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    # SQS' own keys will do: EventBridge can't use another's without a statement in its policy.
    if missing(one.inputs, "kmsMasterKeyId") and differs(True, one.inputs, "sqsManagedSseEnabled"):
        yield "is not encrypted: set sqsManagedSseEnabled or kmsMasterKeyId"


def _bucket(one: Resource, everything: Sequence[Resource]) -> Iterator[str]:
    """A bucket's encryption, its closed door and its demand for TLS are resources of their own, after the bucket."""
    own = [other for other in everything if one.urn in other.dependencies and other.name == one.name]
    kinds = {other.kind for other in own}
    for kind in ("BucketServerSideEncryptionConfiguration", "BucketPublicAccessBlock", "BucketPolicy"):
        if not any(found.startswith(kind) for found in kinds):
            yield f"has no {kind}: declare one of the same name"


def _closed(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        if differs(True, one.inputs, key):
            yield f"leaves {key} off: a bucket is never public"


def _tls(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    statements = document(at(one.inputs, "policy"))
    denies = [s for s in statements if s["Effect"] == "Deny" and "aws:SecureTransport" in str(s.get("Condition"))]
    if statements and not denies:
        yield "lets requests in without TLS: deny those where aws:SecureTransport is false"


def _in_transit(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    for key in ("transitEncryptionEnabled", "atRestEncryptionEnabled"):
        if differs(True, one.inputs, key):
            yield f"leaves {key} off: set it"
    if missing(one.inputs, "authToken"):
        yield "asks for no token: set authToken"


def _secrets(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    if missing(one.inputs, "encryptionConfig", "provider", "keyArn"):
        yield "keeps Secrets without a key of ours: set encryptionConfig.provider.keyArn"
    elif "secrets" not in str(at(one.inputs, "encryptionConfig", "resources")).replace(UNKNOWN, "secrets"):
        yield "encrypts no Secrets: list secrets in encryptionConfig.resources"


def _images(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    if differs("KMS", one.inputs, "encryptionConfigurations", 0, "encryptionType"):
        yield "is not encrypted by KMS: set encryptionConfigurations"


def _disks(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    disks = [at(disk, "ebs") for disk in each(one.inputs, "blockDeviceMappings")]
    if not disks:
        yield "names no disk, so that the AMI's is used, which is not encrypted: set blockDeviceMappings"
    for disk in disks:
        if differs(True, disk, "encrypted") or missing(disk, "kmsKeyId"):
            yield "has a disk that is not encrypted with the region's key: set ebs.encrypted and ebs.kmsKeyId"


RULES = (
    Rule("encrypted-with-the-regions-key", "what is kept has the region's key", frozenset(KEYS), _has_key),
    Rule("queue-encrypted", "queues are encrypted", frozenset({"aws:sqs/queue:Queue"}), _queue),
    Rule(
        "bucket-complete", "buckets are encrypted and closed", frozenset({"aws:s3/bucket:Bucket"}), _bucket, whole=True
    ),
    Rule(
        "bucket-closed",
        "buckets are never public",
        frozenset({"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"}),
        _closed,
    ),
    Rule("bucket-tls", "buckets are for TLS only", frozenset({"aws:s3/bucketPolicy:BucketPolicy"}), _tls),
    Rule(
        "store-encrypted",
        "the shared store has TLS and a token",
        frozenset({"aws:elasticache/replicationGroup:ReplicationGroup"}),
        _in_transit,
    ),
    Rule("secrets-encrypted", "Secrets have a key", frozenset({"aws:eks/cluster:Cluster"}), _secrets),
    Rule("images-encrypted", "images are encrypted", frozenset({"aws:ecr/repository:Repository"}), _images),
    Rule("disks-encrypted", "nodes' disks are", frozenset({"aws:ec2/launchTemplate:LaunchTemplate"}), _disks),
)
