"""Statements of IAM and the documents that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulumi

VERSION = "2012-10-17"
ANY = "*"
Conditions = Mapping[str, pulumi.Input[Mapping[str, pulumi.Input[Any]]]]


@dataclass(frozen=True)
class Place:
    """An account's region, as names of resources have it."""

    partition: pulumi.Input[str]
    region: pulumi.Input[str]
    account: pulumi.Input[str]

    def arn(self, service: str, resource: pulumi.Input[str]) -> pulumi.Output[str]:
        """The ARN of a resource here, such as ec2 and instance/*."""
        return pulumi.Output.concat(
            "arn:", self.partition, ":", service, ":", self.region, ":", self.account, ":", resource
        )

    def public_arn(self, service: str, resource: str) -> pulumi.Output[str]:
        """The ARN of a resource of AWS's own, such as an image: of this region, and of no account."""
        return pulumi.Output.concat("arn:", self.partition, ":", service, ":", self.region, "::", resource)

    def global_arn(self, service: str, resource: str) -> pulumi.Output[str]:
        """The ARN of a resource that no region has, such as a role."""
        return pulumi.Output.concat("arn:", self.partition, ":", service, "::", self.account, ":", resource)


@dataclass(frozen=True)
class Statement:
    """What is allowed, or denied, to whom: `principal` is for policies of resources."""

    sid: str
    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]] = (ANY,)
    conditions: Conditions = field(default_factory=dict)
    effect: Literal["Allow", "Deny"] = "Allow"
    principal: Any = None

    def body(self) -> dict[str, Any]:
        """As IAM's JSON has it."""
        parts: dict[str, Any] = {"Sid": self.sid, "Effect": self.effect}
        if self.principal is not None:
            parts["Principal"] = self.principal
        parts |= {"Action": list(self.actions), "Resource": list(self.resources)}
        return parts | ({"Condition": dict(self.conditions)} if self.conditions else {})


def document(statements: Iterable[Statement]) -> pulumi.Output[str]:
    """The policy document with these statements."""
    body = {"Version": VERSION, "Statement": [one.body() for one in statements]}
    return pulumi.Output.json_dumps(body, separators=(",", ":"))


def trusting(service: str, conditions: Conditions | None = None) -> pulumi.Output[str]:
    """A role's trust: a service of AWS's takes the role on."""
    return _trust([service], ["sts:AssumeRole"], conditions or {})


def pod_identity_trust() -> pulumi.Output[str]:
    """A role's trust for EKS Pod Identity (Amazon EKS User Guide, "Create a Pod Identity role")."""
    return _trust(["pods.eks.amazonaws.com"], ["sts:AssumeRole", "sts:TagSession"], {})


def _trust(services: Sequence[str], actions: Sequence[str], conditions: Conditions) -> pulumi.Output[str]:
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": list(services)},
        "Action": list(actions),
    }
    if conditions:
        statement["Condition"] = dict(conditions)
    return pulumi.Output.json_dumps({"Version": VERSION, "Statement": [statement]})
