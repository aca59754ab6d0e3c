"""Whether the images that the stack's file pins lie in their repositories."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "images"
REFERENCE = re.compile(
    r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^@:]+)(?::[^@]+)?@(sha256:[0-9a-f]{64})"
)


class Facts(msgspec.Struct, frozen=True):
    """By role: whether its image is there; None for what is in no registry of ECR."""

    there: dict[str, bool | None]


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    there: dict[str, bool | None] = {}
    for role, reference in wanted.config.images.digests:
        if reference:
            matched = REFERENCE.fullmatch(reference)
            there[role] = _there(cloud, *matched.groups()) if matched else None
    return Facts(there)


def _there(cloud: Cloud, account: str, region: str, repository: str, digest: str) -> bool:
    ecr = cloud.client("ecr", region)
    try:
        ecr.describe_images(registryId=account, repositoryName=repository, imageIds=[{"imageDigest": digest}])
    except (ecr.exceptions.ImageNotFoundException, ecr.exceptions.RepositoryNotFoundException):
        return False
    return True


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    push = f"`diphase images push --stack {wanted.stack}` pushes and pins them"
    if not facts.there:
        yield Finding(NAME, "ok", "none are pinned: the region is made without the service")
    for role, there in facts.there.items():
        if there is None:
            found = f"images.digests.{role} is in no registry of ECR"
            yield Finding(NAME, "warning", found, "see that nodes may pull it, or push it to the region's own")
        elif there:
            yield Finding(NAME, "ok", f"{role} is there")
        else:
            first = "a new region is made without digests first, for its repositories come with it; then "
            yield Finding(NAME, "fault", f"images.digests.{role} is not in its repository", f"{first}{push}")


CHECK = Check(NAME, "each pinned digest is in its repository of ECR", ("ecr:DescribeImages",), gather, judge)
