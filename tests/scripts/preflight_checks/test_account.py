"""Whose account it is, for how long, and who holds its state."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.exceptions import ClientError
from click.testing import CliRunner

from scripts.faults import Holder
from scripts.preflight import command
from scripts.preflight_checks import CHECKS, identity, look, run, session, state
from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.state.address import ALIAS
from tests.infra.aws.region import changed
from tests.infra.project import ROOT
from tests.scripts.preflight_checks.asked import ACCOUNT, REGION, judged, recorded, told, wanted
from tests.toolchain.aws import moto

CALLER = {"Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:role/deploy", "UserId": "x"}
BUCKET = "s3://states?region=us-east-1"


def test_the_role_that_deploys_is_taken_on(cloud: Cloud) -> None:
    (found,) = look(identity.CHECK, cloud, wanted())
    assert found.verdict == "ok"
    assert "assumed-role/deploy/diphase-preflight" in found.found


def test_of_another_account_nothing_else_is_asked() -> None:
    with recorded({"sts": [("get_caller_identity", {**CALLER, "Account": "999999999999"})] * 2}) as cloud:
        findings = run(cloud, wanted())
    assert [one.check for one in findings] == ["identity"]
    assert "of account 999999999999, and the stack is of 123456789012" in told(findings, "fault")


def test_a_role_that_refuses_is_said() -> None:
    with recorded({"sts": [("get_caller_identity", CALLER), ("assume_role", "AccessDenied")]}) as cloud:
        cloud.deploy_role = f"arn:aws:iam::{ACCOUNT}:role/deploy"
        cloud._clients.pop(("sts", False, REGION))
        findings = look(identity.CHECK, cloud, wanted())
    assert "can't be taken on" in told(findings, "fault")
    assert "trust policy" in told(findings, "fault")


def test_credentials_that_are_refused_are_said() -> None:
    with recorded({"sts": [("get_caller_identity", "ExpiredToken")]}) as cloud:
        assert "aws sso login" in told(look(identity.CHECK, cloud, wanted()), "fault")


def test_the_root_user_is_warned_of() -> None:
    facts = identity.Facts(ACCOUNT, f"arn:aws:iam::{ACCOUNT}:root")
    assert "root user" in told(judged(identity.CHECK, facts), "warning")


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        (session.Facts("env", True, 20), "fault", "20 more minutes; a new region takes 40"),
        (session.Facts("env", True, 60), "warning", "may take 120 minutes"),
        (session.Facts("env", True, 240), "ok", "240 more minutes"),
        (session.Facts("env", True), "warning", "does not say when it ends"),
        (session.Facts("env", False), "warning", "never ends"),
        (session.Facts("iam-role", True, 10), "ok", "renewed by itself"),
    ],
)
def test_sessions_are_held_against_the_longest_update(facts: session.Facts, verdict: str, says: str) -> None:
    assert says in told(judged(session.CHECK, facts), verdict)


def test_a_sessions_end_is_read_where_the_shell_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = datetime.now(UTC) + timedelta(minutes=30)
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "SESSION_TOKEN": "c"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", ends.isoformat())
    facts = session.gather(Cloud(boto3.Session(), REGION), wanted())
    assert facts.method == "env"
    assert facts.minutes == pytest.approx(30, abs=1)


def test_without_a_bucket_of_state_the_command_that_makes_it_is_named(cloud: Cloud) -> None:
    findings = look(state.CHECK, cloud, wanted(backend=BUCKET))
    assert "there is no bucket states → `diphase backend init --stack test`" in told(findings, "fault")
    assert f"no key {ALIAS}" in told(findings, "fault")


def test_who_holds_the_stack_is_said(cloud: Cloud, server: moto.Moto) -> None:
    s3, kms = (server.client(service, REGION, ACCOUNT) for service in ("s3", "kms"))
    s3.create_bucket(Bucket="states")
    key = ".pulumi/locks/organization/diphase/test/1.json"
    held = b'{"pid": 7, "username": "ada", "hostname": "build", "timestamp": "2026-01-02T03:04:05Z"}'
    s3.put_object(Bucket="states", Key=key, Body=held)
    kms.create_alias(AliasName=ALIAS, TargetKeyId=kms.create_key()["KeyMetadata"]["KeyId"])
    said = told(look(state.CHECK, cloud, wanted(backend=BUCKET)), "fault")
    assert "states keeps no old versions" in said
    assert "locked by ada@build, process 7, since 2026-01-02 03:04:05 → wait until" in said
    s3.delete_object(Bucket="states", Key=key)
    s3.put_bucket_versioning(Bucket="states", VersioningConfiguration={"Status": "Enabled"})
    assert [one.verdict for one in look(state.CHECK, cloud, wanted(backend=BUCKET))] == ["ok"]
    s3.close()
    kms.close()


def test_state_in_the_checkout_is_warned_of() -> None:
    assert "no bucket" in told(judged(state.CHECK, state.Facts()), "warning")
    facts = state.Facts("b", holders=[Holder("ada", "build", 7, "2026-01-02T03:04:05")])
    assert "diphase cancel --stack test" in told(judged(state.CHECK, facts), "fault")


class Denied(Cloud):
    """A cloud that answers nothing."""

    def _client(self, service: str, own: bool, region: str) -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "Ask")


@pytest.mark.parametrize("check", [check for check in CHECKS if check.reads], ids=lambda check: check.name)
def test_what_may_not_be_looked_at_is_said_with_the_permissions(check: Check) -> None:
    what = wanted({"edge.host": "a.example.com", "edge.zoneId": "Z0123456789"}, serving=True, backend=BUCKET)
    findings = look(check, Denied(boto3.Session("a", "b"), REGION), what)
    if check is identity.CHECK:
        assert "no usable credentials" in told(findings, "fault")
    else:
        assert f"allow {', '.join(check.reads)}" in told(findings, "warning")


def test_the_page_lists_every_check() -> None:
    page = (ROOT / "docs" / "preflight.md").read_text()
    rows = [f"| {one.name} | {one.about} | {', '.join(f'`{read}`' for read in one.reads) or '-'} |" for one in CHECKS]
    assert [line for line in page.splitlines() if line.startswith("| ")][1:] == rows


def test_the_command_says_it_to_people_and_machines(cloud: Cloud, tmp_path: Path) -> None:
    other = changed({"region.account": "999999999999", "cluster.admins": ["arn:aws:iam::999999999999:role/deploy"]})
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(yaml.safe_dump({"config": {f"diphase:{key}": value for key, value in other.items()}}))
    shown = CliRunner().invoke(command, ["--stack", "test", "--config-file", str(file)])
    assert shown.exit_code == 1
    assert "1 of 1 findings are faults" in shown.output
    read = json.loads(CliRunner().invoke(command, ["--config-file", str(file), "--json"]).output)
    assert (read["verdict"], read["findings"][0]["check"]) == ("fault", "identity")


def test_every_check_says_something_whatever_it_meets(cloud: Cloud) -> None:
    # moto lacks some of what is asked, and says so in ways that AWS never would.
    what = wanted({"edge.host": "a.example.com", "edge.zoneId": "Z0123456789"}, serving=True, backend=BUCKET)
    findings = run(cloud, what)
    assert [one.name for one in CHECKS] == list(dict.fromkeys(one.check for one in findings))
    assert all(one.advice for one in findings if one.verdict != "ok")
    assert "no answer of AWS's: Unable to parse response" in told(findings, "fault")


def test_only_regions_are_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text("config: {'diphase:target': local}")
    done = CliRunner().invoke(command, ["--config-file", str(file)])
    assert (done.exit_code, "preflight is for regions" in done.output) == (1, True)
