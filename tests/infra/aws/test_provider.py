"""The provider of a stack: whose account, which role, which tags."""

from __future__ import annotations

import json
from typing import Any

from infra.aws.provider import aws_provider, tags
from tests.infra.aws.recorder import record
from tests.infra.aws.region import config
from tests.infra.aws.terraform import Provider

ROLE = "arn:aws:iam::123456789012:role/deploy"


def declared(provider: Provider, changes: dict[str, Any] | None = None, stack: str = "test") -> dict[str, Any]:
    graph = record(provider, lambda: aws_provider("region", config(changes), stack))
    return graph.one("pulumi:providers:aws").inputs


def test_it_is_of_one_region_and_refuses_other_accounts(provider: Provider) -> None:
    found = declared(provider, {"region.maxRetries": 3})
    assert found["region"] == "us-east-1"
    assert json.loads(found["allowedAccountIds"]) == ["123456789012"]
    assert json.loads(found["maxRetries"]) == 3
    assert "assumeRoles" not in found


def test_it_takes_on_the_role_that_deploys_under_a_name_that_an_audit_finds(provider: Provider) -> None:
    found = declared(provider, {"region.deployRole": ROLE}, stack=f"dev/{'x' * 80}")
    (role,) = json.loads(found["assumeRoles"])
    assert role["roleArn"] == ROLE
    assert role["sessionName"].startswith("diphase-dev-xx")
    assert len(role["sessionName"]) == 64


def test_every_resource_says_whose_it_is(provider: Provider) -> None:
    changes = {"region.tags": {"owner": "inference"}}
    expected = {"diphase:stack": "test", "diphase:environment": "test", "owner": "inference"}
    assert tags(config(changes), "test") == expected
    assert json.loads(declared(provider, changes)["defaultTags"]) == {"tags": expected}
