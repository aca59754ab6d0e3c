"""What may not be lost in a rollback without being named."""

from __future__ import annotations

import pytest

from infra.kubernetes import api_key as kubernetes
from infra.kubernetes.certificates import Certificates
from infra.local import api_key as local
from infra.local.program import SupervisedProgram
from scripts.progress import Step
from scripts.releases.guard import kind_of, losses, refused


def step(op: str, type_: str, name: str = "it") -> Step:
    return Step(op, f"urn:pulumi:local::diphase::{type_}::{name}", type_)


API_KEY = f"pulumi-python:{local.ApiKey._resource_type_name}"


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (API_KEY, "key"),
        (f"pulumi-python:{kubernetes.ApiKey._resource_type_name}", "key"),
        (f"pulumi-python:{Certificates._resource_type_name}", "key"),
        ("aws:kms/key:Key", "key"),
        ("tls:index/privateKey:PrivateKey", "key"),
        ("random:index/randomPassword:RandomPassword", "key"),
        ("random:index/randomPet:RandomPet", None),
        ("aws:eks/cluster:Cluster", "cluster"),
        ("eks:index:Cluster", "cluster"),
        ("aws:ecs/cluster:Cluster", None),
        ("aws:s3/bucket:Bucket", "data store"),
        ("aws:s3/bucketV2:BucketV2", "data store"),
        ("aws:s3/bucketObject:BucketObject", None),
        ("aws:s3/bucketPolicy:BucketPolicy", None),
        ("aws:elasticache/replicationGroup:ReplicationGroup", "data store"),
        ("aws:elasticache/subnetGroup:SubnetGroup", None),
        ("kubernetes:core/v1:PersistentVolumeClaim", "data store"),
        ("kubernetes:core/v1:Namespace", "namespace"),
        ("kubernetes:apps/v1:Deployment", None),
        (f"pulumi-python:{SupervisedProgram._resource_type_name}", None),
    ],
)
def test_kinds(type_: str, kind: str | None) -> None:
    assert kind_of(type_) == kind


@pytest.mark.parametrize("op", ["create", "update", "refresh", "read", "import"])
def test_what_stays_is_no_loss(op: str) -> None:
    assert losses([step(op, API_KEY)]) == []


@pytest.mark.parametrize(
    ("ops", "how"),
    [
        (["delete"], "deleted"),
        (["replace"], "replaced"),
        (["create-replacement", "replace", "delete-replaced"], "replaced"),
        (["delete-replaced", "replace", "create-replacement"], "replaced"),
        (["discard"], "deleted"),
    ],
)
def test_a_loss_is_told_once(ops: list[str], how: str) -> None:
    found = losses([step(op, API_KEY) for op in ops])
    assert len(found) == 1
    assert str(found[0]).startswith("it (key, urn:pulumi:local::")
    assert str(found[0]).endswith(f"would be {how}")


def test_only_what_is_named_may_be_lost() -> None:
    found = losses([step("delete", API_KEY, "one"), step("delete", API_KEY, "two"), step("delete", "a:b:C", "three")])
    assert [loss.name for loss in refused(found, ["one"])] == ["two"]
    assert refused(found, ["one", found[1].urn]) == []
    assert [loss.name for loss in refused(found, [])] == ["one", "two"]
