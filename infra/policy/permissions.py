"""Nobody may do everything of a service to everything: no wildcard of actions on a wildcard of resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.policy.resource import Resource, Rule, at, document, several

POLICIES = {
    "aws:iam/policy:Policy": "policy",
    "aws:iam/rolePolicy:RolePolicy": "policy",
}
# AWS's own policies that allow everything, or nearly.
ADMINISTRATORS = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess")


def wide(statement: Mapping[str, Any]) -> list[str]:
    """The actions of a statement that are wildcards of a whole service or of all, on every resource.

    `ec2:Describe*` is none: it names what is done, and EC2 knows no resource for it (Service Authorization Reference).
    """
    if statement.get("Effect") != "Allow" or "*" not in several(statement.get("Resource", [])):
        return []
    if "NotAction" in statement:
        return ["NotAction"]
    actions = several(statement.get("Action", []))
    return [action for action in actions if action == "*" or action.partition(":")[2].startswith("*")]


def _wildcards(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    for statement in document(at(one.inputs, POLICIES[one.type])):
        for action in wide(statement):
            sid = statement.get("Sid", "without a Sid")
            yield f"allows {action} on every resource (statement {sid}): name the actions, or the resources"


def _administrators(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    arn = at(one.inputs, "policyArn")
    if isinstance(arn, str) and arn.rpartition("/")[2] in ADMINISTRATORS:
        yield f"gives {arn.rpartition('/')[2]} to a role: name what it does"


def _trust(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    for statement in document(at(one.inputs, "assumeRolePolicy")):
        principal = statement.get("Principal")
        anyone = principal == "*" or (isinstance(principal, dict) and "*" in several(principal.get("AWS", [])))
        if statement.get("Effect") == "Allow" and anyone and not statement.get("Condition"):
            yield "lets anybody take it on: name a principal in assumeRolePolicy"


RULES = (
    Rule("no-wildcard-on-wildcard", "no role may do everything to everything", frozenset(POLICIES), _wildcards),
    Rule(
        "no-administrators",
        "no role is an administrator",
        frozenset({"aws:iam/rolePolicyAttachment:RolePolicyAttachment"}),
        _administrators,
    ),
    Rule("no-open-trust", "not anybody may take a role on", frozenset({"aws:iam/role:Role"}), _trust),
)
