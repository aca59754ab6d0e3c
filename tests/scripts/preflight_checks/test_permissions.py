"""What an `up` calls is called so by AWS, and what IAM refuses is said with its reason."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from scripts.preflight_checks import look, permissions
from scripts.preflight_checks.actions import actions
from tests.scripts.preflight_checks.asked import ACCOUNT, REGION, judged, recorded, told, wanted

ROLE = f"arn:aws:iam::{ACCOUNT}:role/teams/deploy"
SESSION = {"Account": ACCOUNT, "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/deploy/me", "UserId": "x"}
EVERYTHING: dict[str, Any] = {
    "edge": {
        "host": "a.example.com",
        "zoneId": "Z0123456789",
        "cloudfront": {"certificateArn": f"arn:aws:acm:us-east-1:{ACCOUNT}:certificate/1"},
    },
    "storage": {"lustre": {}},
    "monitoring": {"kind": "managed", "grafanaAdmins": ["ops"], "emails": ["a@example.com"], "budget": {"usd": 1}},
    "capacity.decode": {"instanceType": "g6e.2xlarge", "provisioner": "karpenter"},
}
# Names of IAM → botocore's of the service, where they differ; and actions that are no call of their own (Service
# Authorization Reference).
SERVICES = {"aps": "amp"}
NO_CALLS = {
    "budgets:ModifyBudget",
    "iam:PassRole",
    "s3:PutBucketPublicAccessBlock",
    "s3:PutEncryptionConfiguration",
    "s3:PutLifecycleConfiguration",
}


def test_every_action_is_a_call_of_aws() -> None:
    session, unknown = boto3.Session("a", "b", region_name=REGION), []
    everything = actions(wanted(EVERYTHING))
    for service in {action.partition(":")[0] for action in everything}:
        client: Any = session.client(SERVICES.get(service, service))  # type: ignore[call-overload]
        calls = {f"{service}:{name}" for name in client.meta.service_model.operation_names}
        client.close()
        unknown += [one for one in everything if one.startswith(f"{service}:") and one not in calls | NO_CALLS]
    assert unknown == []


@pytest.mark.parametrize(
    "action",
    [
        "fsx:CreateFileSystem",
        "cloudfront:CreateDistribution",
        "aps:CreateWorkspace",
        "budgets:ModifyBudget",
        "sqs:CreateQueue",
        "acm:RequestCertificate",
    ],
)
def test_only_what_the_stack_wants_is_asked_for(action: str) -> None:
    assert action in actions(wanted(EVERYTHING))
    assert action not in actions(wanted())


def simulated(**decisions: Any) -> list[tuple[str, Any]]:
    """IAM's answers, fifty actions each; all are allowed but those named with `_` for a colon."""
    asked = sorted(actions(wanted()))
    results = [
        {"EvalActionName": one, "EvalDecision": "allowed", **decisions.get(one.replace(":", "_"), {})} for one in asked
    ]
    pages = [results[start : start + 50] for start in range(0, len(results), 50)]
    return [("simulate_principal_policy", {"EvaluationResults": page}) for page in pages]


def asked(*answers: tuple[str, Any]) -> list[Any]:
    role = {"Path": "/teams/", "RoleName": "deploy", "RoleId": "A" * 16, "Arn": ROLE, "CreateDate": 0}
    iam = [("get_role", {"Role": role}), *answers]
    with recorded({"sts": [("get_caller_identity", SESSION)], "iam": iam}) as cloud:
        return look(permissions.CHECK, cloud, wanted())


def test_a_role_that_may_do_it_all_is_ok_and_is_asked_for_with_its_path() -> None:
    (found,) = asked(*simulated())
    assert (found.verdict, ROLE in found.found) == ("ok", True)


def test_each_refusal_has_its_reason_and_remedy() -> None:
    boundary = {"PermissionsBoundaryDecisionDetail": {"AllowedByPermissionsBoundary": False}}
    organisation = {"OrganizationsDecisionDetail": {"AllowedByOrganizations": False}}
    said = told(
        asked(
            *simulated(
                eks_CreateCluster={"EvalDecision": "implicitDeny"},
                iam_CreateRole={"EvalDecision": "explicitDeny"},
                kms_CreateKey={"EvalDecision": "implicitDeny", **boundary},
                s3_CreateBucket={"EvalDecision": "explicitDeny", **organisation},
            )
        ),
        "fault",
    )
    assert "by no policy: eks:CreateCluster → allow them to the role" in said
    assert "by a denial: iam:CreateRole → take the Deny statement away" in said
    assert "by the boundary: kms:CreateKey → widen" in said
    assert "by the organisation: s3:CreateBucket → ask whoever" in said


def test_what_is_undecided_is_a_warning_and_root_may_everything() -> None:
    assert "IAM did not decide on" in told(judged(permissions.CHECK, permissions.Facts(ROLE)), "warning")
    root = permissions.Facts(f"arn:aws:iam::{ACCOUNT}:root")
    assert [one.verdict for one in judged(permissions.CHECK, root)] == ["ok"]
