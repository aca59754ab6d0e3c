"""What is kept ends when it should and not before: retention, protection, tags that don't move; standard support."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from infra.policy.resource import UNKNOWN, Resource, Rule, at, differs, missing

# What loses data when it goes. The bucket of access logs counts as well.
STORES = frozenset(
    {
        "aws:s3/bucket:Bucket",
        "aws:elasticache/replicationGroup:ReplicationGroup",
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "aws:kms/key:Key",
        "aws:ecr/repository:Repository",
        "aws:eks/cluster:Cluster",
    }
)
# Environments whose data may go; their stacks set storage.protect to false.
LOOSE = frozenset({"dev", "test"})
TAGS = ("diphase:stack", "diphase:environment")
PROVIDER = "pulumi:providers:aws"


def _retention(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    """ol-infrastructure#5929: logs that never end."""
    if at(one.inputs, "retentionInDays") in (None, 0):
        yield "keeps logs for ever: set retentionInDays"


def _tags(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    found = _default_tags(one)
    for tag in TAGS:
        if found is not None and missing(found, tag):
            yield f"tags nothing with {tag}, by which costs are found: set defaultTags"


def _default_tags(one: Resource) -> object | None:
    """The default tags of a provider, whose inputs reach the engine as JSON; None where they are unknown."""
    given = at(one.inputs, "defaultTags")
    if given == UNKNOWN:
        return None
    if isinstance(given, str):
        given = json.loads(given)
    found = at(given, "tags")
    return None if found == UNKNOWN else (found or {})


def _environment(everything: Sequence[Resource]) -> str | None:
    providers = [one for one in everything if one.type == PROVIDER]
    found = at(_default_tags(providers[0]), TAGS[1]) if providers else None
    return found if isinstance(found, str) else None


def _protected(one: Resource, everything: Sequence[Resource]) -> Iterator[str]:
    if not one.protect and _environment(everything) not in LOOSE:
        yield "is not protected, and data are lost with it: set protect, or storage.protect of the stack"


def _support(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    """sample-aws-genai-ops-demos#84: extended support costs six times as much."""
    if differs("STANDARD", one.inputs, "upgradePolicy", "supportType"):
        yield "may come into extended support at 0.60 USD an hour: set upgradePolicy.supportType to STANDARD"


def _access(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    if differs("API", one.inputs, "accessConfig", "authenticationMode"):
        yield "lets a ConfigMap decide who enters: set accessConfig.authenticationMode to API"


def _immutable(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    if differs("IMMUTABLE", one.inputs, "imageTagMutability"):
        yield "lets tags move: set imageTagMutability to IMMUTABLE"
    if differs(True, one.inputs, "imageScanningConfiguration", "scanOnPush"):
        yield "takes images that nobody looked at: set imageScanningConfiguration.scanOnPush"


RULES = (
    Rule("logs-end", "every log group has a retention", frozenset({"aws:cloudwatch/logGroup:LogGroup"}), _retention),
    Rule("tagged", "everything has the stack's tags", frozenset({PROVIDER}), _tags),
    Rule("stores-protected", "what holds data is protected", STORES, _protected, whole=True),
    Rule("standard-support", "EKS stays in standard support", frozenset({"aws:eks/cluster:Cluster"}), _support),
    Rule("access-entries", "entries alone let in", frozenset({"aws:eks/cluster:Cluster"}), _access),
    Rule("immutable-tags", "tags of images never move", frozenset({"aws:ecr/repository:Repository"}), _immutable),
)
