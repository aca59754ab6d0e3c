"""Whether the names of the stack's buckets are to be had: they are the world's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from botocore.exceptions import ClientError

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "buckets"
Owner = Literal["nobody", "stack", "account", "other"]


class Facts(msgspec.Struct, frozen=True):
    """Whose each name is."""

    owners: dict[str, Owner]


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    s3 = cloud.client("s3")
    return Facts({name: _owner(s3, name, wanted) for name in wanted.buckets})


def _owner(s3: Any, name: str, wanted: Wanted) -> Owner:
    try:
        s3.head_bucket(Bucket=name, ExpectedBucketOwner=wanted.account)
        tags = s3.get_bucket_tagging(Bucket=name)["TagSet"]
    except ClientError as error:
        code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"].get("HTTPStatusCode")
        if status == 404 and error.operation_name == "HeadBucket":
            return "nobody"
        if code == "NoSuchTagSet":
            return "account"
        # What is forbidden and what lies in another region are both somebody's (HeadBucket says no more).
        if status in (301, 403) and error.operation_name == "HeadBucket":
            return "other"
        raise
    return "stack" if {"Key": "diphase:stack", "Value": wanted.stack} in tags else "account"


def judge(_wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    for name, owner in facts.owners.items():
        if owner == "other":
            advice = "set storage.prefix to another; if it is yours, allow s3:ListBucket"
            yield Finding(NAME, "fault", f"{name} is somebody else's, or in another region", advice)
        elif owner == "account":
            advice = "set storage.prefix to another, or delete it, if nobody needs it"
            yield Finding(NAME, "fault", f"{name} is there already, and not this stack's", advice)
    if not {"other", "account"} & set(facts.owners.values()):
        yield Finding(NAME, "ok", f"{len(facts.owners)} names are free or the stack's own")


CHECK = Check(
    NAME,
    "the names of the stack's buckets are free, or its own",
    ("s3:ListBucket", "s3:GetBucketTagging"),
    gather,
    judge,
)
