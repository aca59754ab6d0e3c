"""Whether who deploys may do what an `up` does, by IAM's own simulation of its policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from scripts.preflight_checks.actions import actions
from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "permissions"
AT_ONCE = 50  # actions of one question, so that an answer is one page
ASSUMED = re.compile(r"arn:([\w-]+):sts::\d+:assumed-role/([^/]+)/.*")
Decision = Literal["allowed", "no policy", "a denial", "the boundary", "the organisation"]
ADVICE: dict[Decision, str] = {
    "no policy": "allow them to the role; asked is for any resource, so look at policies that name resources yourself",
    "a denial": "take the Deny statement away, or deploy as another role",
    "the boundary": "widen the role's permissions boundary",
    "the organisation": "ask whoever keeps the organisation's service control policies",
}


class Facts(msgspec.Struct, frozen=True):
    """`principal` is the role or user; what IAM decides of each action. Empty for root, whom nothing stops."""

    principal: str
    decisions: dict[str, Decision] = {}


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    arn = str(cloud.client("sts").get_caller_identity()["Arn"])
    iam = cloud.client("iam")
    if arn.endswith(":root"):
        return Facts(arn)
    if matched := ASSUMED.fullmatch(arn):
        arn = iam.get_role(RoleName=matched.group(2))["Role"]["Arn"]  # with its path, which the session's name lacks
    asked = sorted(actions(wanted))
    decisions: dict[str, Decision] = {}
    for start in range(0, len(asked), AT_ONCE):
        pages = iam.get_paginator("simulate_principal_policy").paginate(
            PolicySourceArn=arn, ActionNames=asked[start : start + AT_ONCE]
        )
        decisions |= {one["EvalActionName"]: _decision(one) for page in pages for one in page["EvaluationResults"]}
    return Facts(arn, decisions)


def _decision(result: dict[str, Any]) -> Decision:
    if result["EvalDecision"] == "allowed":
        return "allowed"
    if not result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations", True):
        return "the organisation"
    if not result.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary", True):
        return "the boundary"
    return "a denial" if result["EvalDecision"] == "explicitDeny" else "no policy"


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    if facts.principal.endswith(":root"):
        yield Finding(NAME, "ok", "the root user may do everything")
        return
    faulty = False
    for why, advice in ADVICE.items():
        refused = sorted(action for action, decision in facts.decisions.items() if decision == why)
        if refused:
            faulty = True
            yield Finding(NAME, "fault", f"{facts.principal} may not, by {why}: {', '.join(refused)}", advice)
    unknown = sorted(actions(wanted) - facts.decisions.keys())
    if unknown:
        yield Finding(NAME, "warning", f"IAM did not decide on {', '.join(unknown)}", "look at the role's policies")
    elif not faulty:
        yield Finding(NAME, "ok", f"{facts.principal} may do all {len(facts.decisions)} actions that were asked for")


CHECK = Check(
    NAME,
    "who deploys may do what an `up` does: policies, boundary and organisation, by IAM's simulation",
    ("sts:GetCallerIdentity", "iam:GetRole", "iam:SimulatePrincipalPolicy"),
    gather,
    judge,
)
