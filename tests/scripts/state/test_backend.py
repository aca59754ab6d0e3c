"""A backend on moto: made once, mended where it is open, used by the real Pulumi CLI, its locks seen."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from click.testing import CliRunner, Result

from scripts.backend import command
from scripts.faults import OperationFailed
from scripts.state.address import ALIAS
from scripts.state.bootstrap import Home
from tests.infra.project import ROOT, make_project
from tests.scripts.state.conftest import ACCOUNT
from tests.toolchain.aws.moto import Moto

DIPHASE = f"{sys.prefix}/bin/diphase"
PULUMI = f"{sys.prefix}/pulumi-cli/bin/pulumi"
STACK, REGION = "prod-eu-west-1", "eu-west-1"
BUCKET = f"diphase-state-{ACCOUNT}-{REGION}"
PROVIDER = f"awskms://{ALIAS}?region={REGION}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = make_project(tmp_path / "project", monkeypatch)
    (made / "stacks" / f"Pulumi.{STACK}.yaml").write_text((ROOT / "stacks" / f"Pulumi.{STACK}.yaml").read_text())
    return made


@pytest.fixture
def s3(cloud: Moto) -> Iterator[Any]:
    client = cloud.client("s3", REGION, ACCOUNT)
    yield client
    for one in client.list_buckets()["Buckets"]:
        for kind in ("Versions", "DeleteMarkers"):
            for each in client.list_object_versions(Bucket=one["Name"]).get(kind, []):
                client.delete_object(Bucket=one["Name"], Key=each["Key"], VersionId=each["VersionId"])
        client.delete_bucket(Bucket=one["Name"])
    client.close()


@pytest.fixture
def kms(cloud: Moto) -> Iterator[Any]:
    client = cloud.client("kms", REGION, ACCOUNT)
    yield client
    client.close()


def init(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["init", "--stack", STACK, *arguments])


def test_the_bucket_is_closed_encrypted_and_keeps_versions(project: Path, s3: Any, kms: Any) -> None:
    done = init("--yes")
    assert done.exit_code == 0, done.output
    assert f"export PULUMI_BACKEND_URL='s3://{BUCKET}?region={REGION}&awssdk=v2'" in done.output
    key = kms.describe_key(KeyId=ALIAS)["KeyMetadata"]
    assert kms.get_key_rotation_status(KeyId=key["KeyId"])["KeyRotationEnabled"]
    (rule,) = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key["Arn"]}
    assert all(s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"].values())
    assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] == REGION
    statements = json.loads(s3.get_bucket_policy(Bucket=BUCKET)["Policy"])["Statement"]
    assert {(one["Effect"], *one["Condition"]) for one in statements} == {("Deny", "Bool"), ("Deny", "NumericLessThan")}
    (lifecycle,) = s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    assert lifecycle["NoncurrentVersionExpiration"] == {"NoncurrentDays": 90}


def test_a_second_time_nothing_is_done(project: Path, s3: Any) -> None:
    assert init("--yes").exit_code == 0
    again = init()
    assert again.exit_code == 0, again.output
    assert "are as they should be" in again.output


def test_what_is_open_is_mended_and_the_rest_kept(project: Path, s3: Any) -> None:
    assert init("--yes").exit_code == 0
    theirs = {"Sid": "Theirs", "Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket", "Resource": "*"}
    s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": [theirs]}))
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
    done = init("--yes")
    assert re.findall(r"^done: (.*)$", done.output, re.M) == ["keep old versions", "refuse connections without TLS 1.2"]
    statements = json.loads(s3.get_bucket_policy(Bucket=BUCKET)["Policy"])["Statement"]
    assert [one["Sid"] for one in statements] == ["Theirs", "TlsOnly", "NewTlsOnly"]


def test_it_says_what_it_would_do_and_does_nothing_unasked(project: Path, s3: Any) -> None:
    asked = init()
    assert asked.exit_code == 1
    assert f"make the bucket {BUCKET} in {REGION}" in asked.output
    assert "add --yes" in asked.output
    assert s3.list_buckets()["Buckets"] == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"111122223333"', '"999999999999"', "these credentials are of account 111122223333"),
        ("secretsprovider: awskms", "secretsprovider: gcpkms", f"set it to {PROVIDER}"),
        ("target: aws", "target: local", "is in no region"),
    ],
)
def test_a_file_that_means_another_place_is_refused(project: Path, s3: Any, old: str, new: str, says: str) -> None:
    file = project / "stacks" / f"Pulumi.{STACK}.yaml"
    file.write_text(file.read_text().replace(old, new))
    done = init("--yes")
    assert done.exit_code == 1
    assert says in done.output
    assert s3.list_buckets()["Buckets"] == []


def test_another_accounts_bucket_is_refused() -> None:
    # Recorded, for moto shows everybody every bucket.
    session = boto3.Session("a", "b", region_name=REGION)
    home = Home(BUCKET, REGION, ACCOUNT, session)
    try:
        with Stubber(home._kms) as kms, Stubber(home._s3) as s3:
            kms.add_client_error("describe_key", "NotFoundException")
            s3.add_client_error("head_bucket", "403", http_status_code=403)
            with pytest.raises(OperationFailed, match="another account's"):
                list(home.steps())
    finally:
        home.close()


def test_a_key_that_is_to_be_deleted_is_no_key(project: Path, s3: Any, kms: Any) -> None:
    assert init("--yes").exit_code == 0
    key = kms.describe_key(KeyId=ALIAS)["KeyMetadata"]["KeyId"]
    kms.schedule_key_deletion(KeyId=key)
    done = init("--yes")
    kms.cancel_key_deletion(KeyId=key)
    kms.enable_key(KeyId=key)
    assert done.exit_code == 1
    assert "is PendingDeletion" in done.output


def diphase(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DIPHASE, *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_pulumi_keeps_state_and_secrets_there_and_its_locks_are_seen(
    project: Path, s3: Any, cloud: Moto, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init("--yes").exit_code == 0
    s3.delete_bucket_policy(Bucket=BUCKET)  # moto hears that something is denied, and not under which condition
    url = f"s3://{BUCKET}?region={REGION}&awssdk=v2&endpoint={cloud.url}&s3ForcePathStyle=true"
    monkeypatch.setenv("PULUMI_BACKEND_URL", url)
    monkeypatch.setenv("PULUMI_SKIP_UPDATE_CHECK", "true")
    monkeypatch.setenv("PULUMI_HOME", str(project / "home"))
    command = [PULUMI, "--non-interactive", "stack", "init", STACK, "--secrets-provider", PROVIDER]
    made = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stderr
    assert "encryptedkey" in (project / "stacks" / f"Pulumi.{STACK}.yaml").read_text()
    assert (
        s3.head_object(Bucket=BUCKET, Key=f".pulumi/stacks/diphase/{STACK}.json")["ServerSideEncryption"] == "aws:kms"
    )

    assert "is not locked" in diphase("cancel", "--stack", STACK).stderr
    lock = f".pulumi/locks/organization/diphase/{STACK}/0.json"
    for pid, host in ((os.getpid(), socket.gethostname()), (4711, "elsewhere")):
        held = {"pid": pid, "username": "ada", "hostname": host, "timestamp": "2026-01-02T03:04:05.6Z"}
        s3.put_object(Bucket=BUCKET, Key=lock, Body=json.dumps(held))
        refused = diphase("cancel", "--stack", STACK)
        assert refused.returncode == 1
        assert f"locked by ada@{host}, process {pid}, since 2026-01-02 03:04:05" in refused.stderr
        assert "then add --yes" in refused.stderr
        assert s3.head_object(Bucket=BUCKET, Key=lock)
    done = diphase("cancel", "--stack", STACK, "--yes")
    assert done.returncode == 0, done.stderr
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix=".pulumi/locks/")
