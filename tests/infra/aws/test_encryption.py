"""The region's key, and who may use it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.aws.encryption import Encryption, EncryptionArgs
from infra.aws.permissions.statement import Place
from tests.infra.aws.recorder import ACCOUNT, REGION, Graph, record
from tests.infra.aws.terraform import Provider


def declared(provider: Provider, protect: bool = True, lustre: bool = False) -> Graph:
    args = EncryptionArgs(Place("aws", REGION, ACCOUNT), 30, protect, lustre)
    return record(provider, lambda: Encryption("region", args))


def statements(graph: Graph) -> dict[str, Any]:
    return {one["Sid"]: one for one in json.loads(graph.one("Key").inputs["policy"])["Statement"]}


@pytest.mark.parametrize("lustre", [False, True])
def test_the_provider_takes_it(provider: Provider, lustre: bool) -> None:
    assert list(declared(provider, lustre=lustre).faults(provider)) == []


def test_it_rotates_and_is_protected_unless_somebody_says_otherwise(provider: Provider) -> None:
    key = declared(provider).one("Key")
    assert key.inputs["enableKeyRotation"] is True
    assert key.protect
    assert not declared(provider, protect=False).one("Key").protect


def test_it_serves_the_account_only(provider: Provider) -> None:
    found = statements(declared(provider))
    assert found["Account"]["Principal"] == {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
    assert "Lustre" not in found
    condition = statements(declared(provider, lustre=True))["Lustre"]["Condition"]
    assert condition["StringEquals"] == {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
    assert condition["ArnLike"]["aws:PrincipalArn"].startswith(f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/")


def test_auto_scaling_may_start_nodes_with_encrypted_disks(provider: Provider) -> None:
    """Without the grant its instances end as soon as they begin, with Client.InternalError."""
    found = statements(declared(provider))
    assert found["DiskGrants"]["Action"] == ["kms:CreateGrant"]
    assert found["DiskGrants"]["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    for sid in ("Disks", "DiskGrants"):
        role = found[sid]["Condition"]["ArnEquals"]["aws:PrincipalArn"]
        assert role.startswith(f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/autoscaling.amazonaws.com/")
