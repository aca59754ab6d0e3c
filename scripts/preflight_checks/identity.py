"""Whose account it is, and whether the role that deploys can be taken on."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud, Unusable
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "identity"


class Facts(msgspec.Struct, frozen=True):
    """Who deploys, as STS says."""

    account: str
    arn: str


def gather(cloud: Cloud, _wanted: Wanted) -> Facts:
    try:
        cloud.own("sts").get_caller_identity()
    except (ClientError, BotoCoreError) as error:
        raise Unusable(
            f"there are no usable credentials: {error}", "log in (`aws sso login`), or choose others (AWS_PROFILE)"
        ) from None
    found = cloud.client("sts").get_caller_identity()
    return Facts(found["Account"], found["Arn"])


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    if facts.account != wanted.account:
        advice = "choose other credentials (AWS_PROFILE), or mend region.account or region.deployRole"
        found = f"{facts.arn} is of account {facts.account}, and the stack is of {wanted.account}"
        yield Finding(NAME, "fault", found, advice)
    elif facts.arn.endswith(":root"):
        yield Finding(
            NAME, "warning", "this is the account's root user", "deploy as a role, and name it in region.deployRole"
        )
    else:
        yield Finding(NAME, "ok", f"{facts.arn} deploys")


CHECK = Check(
    NAME,
    "the credentials are of region.account, and region.deployRole can be taken on",
    ("sts:AssumeRole",),
    gather,
    judge,
)
