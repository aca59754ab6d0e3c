"""Buckets and the shared store, as they would be made."""

from __future__ import annotations

import json

import pytest

from infra.aws.permissions.statement import Place
from infra.aws.storage import Storage, StorageArgs
from infra.config import StackConfig
from tests.infra.aws.recorder import ACCOUNT, REGION, Graph, record
from tests.infra.aws.terraform import Provider

PLACE = Place("aws", REGION, ACCOUNT)
BUCKETS = ["weights", "kv", "backups", "access-logs"]
SUBNETS, GROUPS = ["subnet-0a", "subnet-0b"], ["sg-0a"]
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
TOKEN = "0123456789abcdef" * 4


def declared(provider: Provider, **storage: object) -> Graph:
    config = StackConfig.parse({"target": "local", "storage": storage}).storage
    args = StorageArgs(config, PLACE, "diphase-test", KEY, SUBNETS, GROUPS, 90)
    return record(provider, lambda: Storage("storage", args), {"storage-valkey-token": {"token": TOKEN}})


@pytest.fixture(scope="module")
def graph(provider: Provider) -> Graph:
    return declared(provider)


@pytest.mark.parametrize(
    "storage",
    [
        {},
        {"protect": False, "valkey": {"replicas": 0, "snapshotDays": 0}},
        {"lustre": {"capacityGib": 2400, "throughput": 500}, "valkey": {"engineVersion": "7.2", "replicas": 2}},
    ],
)
def test_the_provider_takes_it(provider: Provider, storage: dict[str, object]) -> None:
    assert list(declared(provider, **storage).faults(provider)) == []


def test_every_bucket_is_closed_versioned_encrypted_and_ends(graph: Graph) -> None:
    names = {one.inputs["bucket"] for one in graph.of("s3/bucket:Bucket")}
    assert names == {f"diphase-test-{what}" for what in BUCKETS}
    for what in BUCKETS:
        closed = graph.one("BucketPublicAccessBlock", what).inputs
        assert [v for k, v in closed.items() if k != "bucket"] == [True] * 4
        assert graph.one("BucketVersioning", what).inputs["versioningConfiguration"] == {"status": "Enabled"}
        rule = graph.one("BucketServerSideEncryptionConfiguration", what).inputs["rules"][0]
        expected = "AES256" if what == "access-logs" else "aws:kms"  # deliveries of access logs know no other
        assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == expected
        ends = graph.one("BucketLifecycleConfiguration", what).inputs["rules"][0]
        assert ends["noncurrentVersionExpiration"] == {"noncurrentDays": 30}
        assert ends.get("expiration") == {"kv": {"days": 7}, "backups": {"days": 35}, "access-logs": {"days": 90}}.get(
            what
        )


def test_nobody_reads_without_tls(graph: Graph) -> None:
    for what in BUCKETS:
        statements = {s["Sid"]: s for s in json.loads(graph.one("BucketPolicy", what).inputs["policy"])["Statement"]}
        denied = statements["TlsOnly"]
        assert denied["Effect"] == "Deny"
        assert denied["Principal"] == "*"
        assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        assert len(denied["Resource"]) == 2
        assert statements["NewTlsOnly"]["Condition"] == {"NumericLessThan": {"s3:TlsVersion": "1.2"}}


def test_access_logs_are_written_by_this_accounts_services_only(graph: Graph) -> None:
    policy = json.loads(graph.one("BucketPolicy", "access-logs").inputs["policy"])["Statement"]
    writers = {s["Principal"]["Service"]: s["Condition"] for s in policy if s["Effect"] == "Allow"}
    assert set(writers) == {"logging.s3.amazonaws.com", "logdelivery.elasticloadbalancing.amazonaws.com"}
    assert all(condition == {"StringEquals": {"aws:SourceAccount": ACCOUNT}} for condition in writers.values())
    assert {one.name for one in graph.of("BucketLogging")} == {"storage-weights", "storage-kv", "storage-backups"}


def test_what_holds_data_is_protected_unless_somebody_says_otherwise(provider: Provider, graph: Graph) -> None:
    kinds = ("s3/bucket:Bucket", "ReplicationGroup")
    assert all(one.protect for kind in kinds for one in graph.of(kind))
    loose = declared(provider, protect=False, lustre={})
    assert not any(one.protect for one in loose.resources)
    assert declared(provider, lustre={}).one("LustreFileSystem").protect


def test_the_shared_store_has_tls_a_token_and_a_second_zone(graph: Graph) -> None:
    store = graph.one("ReplicationGroup").inputs
    assert store["transitEncryptionEnabled"] is store["atRestEncryptionEnabled"] is True
    assert store["multiAzEnabled"] is store["automaticFailoverEnabled"] is True
    assert store["numCacheClusters"] == 2
    assert graph.one("LogGroup").inputs["retentionInDays"] == 90


def test_a_single_node_has_nobody_to_fail_over_to(provider: Provider) -> None:
    store = declared(provider, valkey={"replicas": 0}).one("ReplicationGroup").inputs
    assert store["multiAzEnabled"] is store["automaticFailoverEnabled"] is False


def test_nothing_is_put_into_a_bucket_before_it_is_closed(graph: Graph) -> None:
    """Access logs go to a bucket only when its policy and encryption are there: its name waits for them."""
    waits = graph.one("BucketLogging", "weights").dependencies
    for kind in ("BucketPolicy", "BucketPublicAccessBlock", "BucketServerSideEncryptionConfiguration"):
        assert graph.one(kind, "access-logs").urn in waits
