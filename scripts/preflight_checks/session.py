"""Whether the credentials last as long as the longest update."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud, Unusable
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "session"
# How long AWS's provider waits at most for what is made one after the other: the cluster 30 minutes, a group of nodes
# 60 (Terraform, aws_eks_cluster and aws_eks_node_group, Timeouts); half an hour for network and charts.
LONGEST_MINUTES = 120
# A new region that goes well: cluster 10, nodes and charts after it.
USUAL_MINUTES = 40
# What botocore renews without a person, as long as it may.
RENEWED = (
    "iam-role",
    "container-role",
    "assume-role",
    "assume-role-with-web-identity",
    "custom-process",
    "sso",
    "login",
)


class Facts(msgspec.Struct, frozen=True):
    """`method` is how botocore found the credentials; `minutes` how long they last, None where nothing says so."""

    method: str
    temporary: bool
    minutes: float | None = None


def gather(cloud: Cloud, _wanted: Wanted) -> Facts:
    found = cloud.session.get_credentials()
    if found is None:
        raise Unusable("there are no credentials", "log in (`aws sso login`), or choose some (AWS_PROFILE)")
    frozen = found.get_frozen_credentials()
    ends = getattr(found, "_expiry_time", None)  # botocore says it nowhere else
    minutes = (ends - datetime.now(UTC)).total_seconds() / 60 if ends else None
    return Facts(found.method, frozen.token is not None, minutes)


def judge(_wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    if not facts.temporary:
        yield Finding(
            NAME, "warning", f"the key of a user ({facts.method}), which never ends", "take a role's session instead"
        )
    elif facts.method in RENEWED:
        yield Finding(NAME, "ok", f"a session that is renewed by itself ({facts.method})")
    elif facts.minutes is None:
        yield Finding(
            NAME,
            "warning",
            f"a session ({facts.method}) that does not say when it ends; an update may take {LONGEST_MINUTES} minutes",
            "set AWS_CREDENTIAL_EXPIRATION with it, or use a profile that is renewed by itself",
        )
    else:
        yield _judged(facts.method, facts.minutes)


def _judged(method: str, minutes: float) -> Finding:
    found = f"a session ({method}) of {minutes:.0f} more minutes"
    advice = f"take a longer one (the role's MaxSessionDuration): an update may take {LONGEST_MINUTES} minutes"
    if minutes < USUAL_MINUTES:
        return Finding(NAME, "fault", f"{found}; a new region takes {USUAL_MINUTES}", advice)
    if minutes < LONGEST_MINUTES:
        return Finding(NAME, "warning", found, advice)
    return Finding(NAME, "ok", found)


CHECK = Check(NAME, "the credentials last as long as the longest update", (), gather, judge)
