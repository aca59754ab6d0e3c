"""Whether the state's bucket and key are there, and whether somebody holds the stack."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from botocore.exceptions import ClientError

from scripts.faults import Holder, OperationFailed
from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud, Unusable
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted
from scripts.state import locks
from scripts.state.address import ALIAS, Bucket

NAME = "state"
PROJECT = "diphase"


class Facts(msgspec.Struct, frozen=True):
    """Nothing is known of a backend that is no bucket."""

    bucket: str | None = None
    there: bool = True
    versioned: bool = True
    key: bool = True
    holders: list[Holder] = []


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    bucket = Bucket.of(wanted.backend or "")
    if bucket is None:
        return Facts()
    s3 = cloud.own("s3")
    try:
        versioned = s3.get_bucket_versioning(Bucket=bucket.name).get("Status") == "Enabled"
    except s3.exceptions.NoSuchBucket:
        return Facts(bucket.name, there=False, versioned=False, key=_key(cloud))
    try:
        return Facts(bucket.name, True, versioned, _key(cloud), locks.holders(bucket, PROJECT, wanted.stack))
    except OperationFailed as failed:
        raise Unusable(failed.message, f"allow {', '.join(CHECK.reads)}") from None


def _key(cloud: Cloud) -> bool:
    kms = cloud.own("kms")
    try:
        return bool(kms.describe_key(KeyId=ALIAS)["KeyMetadata"]["Enabled"])
    except ClientError as error:
        if error.response["Error"]["Code"] == "NotFoundException":
            return False
        raise


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    make = f"`diphase backend init --stack {wanted.stack}` makes it"
    if facts.bucket is None:
        yield Finding(NAME, "warning", "the state lies in no bucket of S3", f"set secretsprovider: awskms://{ALIAS}?…")
        return
    if not facts.there:
        yield Finding(NAME, "fault", f"there is no bucket {facts.bucket}", make)
    elif not facts.versioned:
        yield Finding(NAME, "fault", f"{facts.bucket} keeps no old versions: a broken state is lost", make)
    if not facts.key:
        yield Finding(NAME, "fault", f"there is no key {ALIAS} that can be used", make)
    if facts.holders:
        who = "; ".join(map(str, facts.holders))
        cancel = f"wait until that operation ends; if it is dead: `diphase cancel --stack {wanted.stack}`"
        yield Finding(NAME, "fault", f"the stack is locked by {who}", cancel)
    elif facts.there and facts.versioned and facts.key:
        yield Finding(NAME, "ok", f"s3://{facts.bucket}; nobody holds the stack")


CHECK = Check(
    NAME,
    "the state's bucket keeps old versions, its key is there, nobody holds the stack",
    ("s3:GetBucketVersioning", "s3:ListBucket", "s3:GetObject", "kms:DescribeKey"),
    gather,
    judge,
)
