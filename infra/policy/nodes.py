"""Nodes are what was bought and pinned: reservations are used, releases stay, sizes are the autoscaler's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infra.policy.resource import UNKNOWN, Resource, Rule, at, differs, each, missing

TEMPLATE, GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/nodeGroup:NodeGroup"
RESERVATION = ("capacityReservationSpecification", "capacityReservationTarget", "capacityReservationId")
RELEASE = re.compile(r"1\.\d{2}\.\d+-20\d{6}")
TAGGED = {"instance", "volume", "network-interface"}


def template_of(group: Resource, everything: Sequence[Resource]) -> Resource | None:
    """The launch template that a node group is made of."""
    return next((one for one in everything if one.type == TEMPLATE and one.urn in group.dependencies), None)


def _metadata(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    if differs("required", one.inputs, "metadataOptions", "httpTokens"):
        yield "answers IMDSv1: set metadataOptions.httpTokens to required"


def _tags(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    """pulumi-aws#1655: tags of an instance reach its volumes and interfaces only so."""
    specified = {at(each_of, "resourceType") for each_of in each(one.inputs, "tagSpecifications")}
    for kind in sorted(TAGGED - specified):
        yield f"leaves each {kind} without tags: add a tagSpecification for it"


def _reservation(one: Resource, everything: Sequence[Resource]) -> Iterator[str]:
    """zalando/kubernetes-on-aws#11623, eksctl#8542: what is paid for must be in the template."""
    template = template_of(one, everything)
    if template is None:
        return
    reserved = at(template.inputs, *RESERVATION)
    if at(one.inputs, "capacityType") == "CAPACITY_BLOCK" and reserved is None:
        yield f"is of a capacity block, which {template.name} does not name: set {'.'.join(RESERVATION)}"
    if reserved is None:
        return
    if at(one.inputs, "capacityType") == "SPOT":
        yield "is spot, so that its reservation idles: take ON_DEMAND"
    if at(one.inputs, "subnetIds") != UNKNOWN and len(each(one.inputs, "subnetIds")) != 1:
        yield "has subnets of several zones; a reservation is of one: take the subnet of its zone"
    if not missing(template.inputs, "placement", "groupName"):
        yield "has a placement group beside its reservation, which decides where instances lie: leave it out"


def _release(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    """karpenter#6952, amazon-eks-ami#2706: a release that comes by itself replaces every node."""
    release = at(one.inputs, "releaseVersion")
    if release != UNKNOWN and not (isinstance(release, str) and RELEASE.fullmatch(release)):
        yield f"has AMI release {release}: pin one such as 1.35.6-20260818"


def _size(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    """n8n#50: an update that sets the size drains live nodes."""
    if "scalingConfig.desiredSize" not in one.ignored:
        yield "sets its size with each update: ignore changes of scalingConfig.desiredSize"


def _karpenter(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    spec = at(one.inputs, "spec")
    for term in each(spec, "amiSelectorTerms"):
        alias = at(term, "alias")
        if isinstance(alias, str) and alias != UNKNOWN and alias.endswith("@latest"):
            yield f"takes AMI {alias}: pin its release"
    if differs("required", spec, "metadataOptions", "httpTokens"):
        yield "answers IMDSv1: set metadataOptions.httpTokens to required"
    if at(spec, "associatePublicIPAddress") is True:
        yield "gives nodes public addresses: set associatePublicIPAddress to false"
    for disk in each(spec, "blockDeviceMappings"):
        if differs(True, disk, "ebs", "encrypted"):
            yield "has a disk that is not encrypted: set ebs.encrypted"


RULES = (
    Rule("imdsv2", "nodes answer IMDSv2 only", frozenset({TEMPLATE}), _metadata),
    Rule("tags-of-nodes", "volumes and interfaces have the stack's tags", frozenset({TEMPLATE}), _tags),
    Rule("reservation-used", "what is reserved is used, in its zone", frozenset({GROUP}), _reservation, whole=True),
    Rule("release-pinned", "AMI releases are pinned", frozenset({GROUP}), _release),
    Rule("size-ignored", "the autoscaler decides on sizes", frozenset({GROUP}), _size),
    Rule(
        "karpenter-nodes",
        "Karpenter's nodes are as closed as the others",
        frozenset({"kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"}),
        _karpenter,
    ),
)
