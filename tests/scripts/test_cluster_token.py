"""`diphase cluster-token` as kubectl calls it: a request that STS would take, for one cluster, and sentences else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

import boto3
import pytest
from botocore.exceptions import ConnectionError as NotConnected
from click.testing import CliRunner, Result

from infra.aws.kubeconfig import kubeconfig
from scripts import cli
from scripts.cluster_token import PREFIX, TOKEN_MINUTES, command
from tests.ports import free_port

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
REGION, CLUSTER = "eu-west-1", "diphase-prod"
ROLE = "arn:aws:iam::123456789012:role/deploy"


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of the environment, and nothing else of this machine's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def sts() -> Iterator[str]:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
    client = boto3.client("sts", REGION, endpoint_url=endpoint, aws_access_key_id="a", aws_secret_access_key="b")
    try:
        while True:
            try:
                client.get_caller_identity()
                break
            except NotConnected:
                assert time.monotonic() < deadline
        client.close()
        yield endpoint
    finally:
        server.terminate()
        server.wait(20)


def call(*more: str) -> Result:
    return CliRunner().invoke(command, ["--cluster", CLUSTER, "--region", REGION, *more])


def url(done: Result) -> SplitResult:
    assert done.exit_code == 0, done.output
    token = json.loads(done.stdout)["status"]["token"]
    assert token.startswith(PREFIX)
    assert "=" not in token, "EKS takes base64url without padding"
    body = token.removeprefix(PREFIX)
    return urlsplit(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode())


def signature(asked: SplitResult, cluster: str) -> str:
    """Signature version 4 by its description (IAM User Guide, "Create a signed AWS API request")."""
    query = {key: values[0] for key, values in parse_qs(asked.query).items() if key != "X-Amz-Signature"}
    pairs = "&".join(f"{quote(key, safe='-_.~')}={quote(query[key], safe='-_.~')}" for key in sorted(query))
    headers = f"host:{asked.netloc}\nx-k8s-aws-id:{cluster}\n"
    empty = hashlib.sha256(b"").hexdigest()
    request = "\n".join(["GET", "/", pairs, headers, "host;x-k8s-aws-id", empty])
    day, region, service, end = query["X-Amz-Credential"].split("/")[1:]
    text = "\n".join(
        [
            "AWS4-HMAC-SHA256",
            query["X-Amz-Date"],
            f"{day}/{region}/{service}/{end}",
            hashlib.sha256(request.encode()).hexdigest(),
        ]
    )
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, service, end):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


@pytest.mark.usefixtures("credentials")
def test_the_token_is_a_signed_question_who_asks() -> None:
    asked = url(call())
    query = {key: values[0] for key, values in parse_qs(asked.query).items()}
    assert (asked.scheme, asked.netloc, asked.path) == ("https", f"sts.{REGION}.amazonaws.com", "/")
    assert (query["Action"], query["Version"], query["X-Amz-Expires"]) == ("GetCallerIdentity", "2011-06-15", "60")
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert query["X-Amz-Signature"] == signature(asked, CLUSTER)


@pytest.mark.usefixtures("credentials")
def test_another_cluster_can_not_use_it() -> None:
    asked = url(call())
    assert parse_qs(asked.query)["X-Amz-Signature"] != [signature(asked, "another")]


@pytest.mark.usefixtures("credentials")
def test_it_is_asked_for_anew_before_it_ends() -> None:
    found = json.loads(call().stdout)
    assert (found["apiVersion"], found["kind"]) == ("client.authentication.k8s.io/v1", "ExecCredential")
    expiry = datetime.fromisoformat(found["status"]["expirationTimestamp"])
    left = (expiry - datetime.now(UTC)).total_seconds()
    assert TOKEN_MINUTES * 60 - 30 < left <= TOKEN_MINUTES * 60 < 15 * 60


@pytest.mark.usefixtures("credentials")
def test_a_role_is_taken_on_and_the_cluster_still_asks_aws(sts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", sts)
    asked = url(call("--role", ROLE))
    query = parse_qs(asked.query)
    assert asked.netloc == f"sts.{REGION}.amazonaws.com"
    assert query["X-Amz-Security-Token"]
    assert not query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE")


@pytest.mark.usefixtures("credentials")
def test_without_credentials_it_says_how_to_get_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for more in ([], ["--role", ROLE]):
        done = call(*more)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "no AWS credentials are found: log in (`aws sso login`" in done.stderr
    monkeypatch.setenv("AWS_PROFILE", "missing")
    assert "(missing) could not be found: log in" in call().stderr


@pytest.mark.usefixtures("credentials")
def test_an_address_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    done = call("--role", ROLE)
    assert done.exit_code == 1
    assert f"STS in {REGION} is not reached" in done.stderr


@pytest.mark.usefixtures("credentials")
def test_the_kubeconfigs_command_is_one_of_ours() -> None:
    content = json.loads(kubeconfig("prod", CLUSTER, REGION, "https://x", "Y2E=", None))
    asked = content["users"][0]["user"]["exec"]
    assert asked["command"] == cli.diphase.name == "diphase"
    done = CliRunner().invoke(cli.diphase, asked["args"])
    assert json.loads(done.stdout)["kind"] == "ExecCredential"


def test_what_diphase_starts_finds_diphase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(sys, "argv", ["diphase", "--help"])
    cli.main()
    assert os.environ["PATH"] == f"{sys.prefix}/bin:/usr/bin"
