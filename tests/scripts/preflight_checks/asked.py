"""Stacks for checks to judge, and answers as botocore's own model of the service allows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import boto3
from botocore.stub import Stubber

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted
from tests.infra.aws.region import config

STACK, REGION, ACCOUNT = "test", "us-east-1", "123456789012"
OURS = [{"Key": "diphase:stack", "Value": STACK}]
# What a call was asked is not what these tests are about; what was answered is.
Answers = Mapping[str, list[tuple[str, Any]]]


def wanted(changes: Mapping[str, Any] | None = None, *, serving: bool = False, backend: str | None = None) -> Wanted:
    return Wanted(STACK, config(changes, serving=serving), backend)


@contextmanager
def recorded(answers: Answers) -> Iterator[Cloud]:
    """A cloud of recorded answers: for each service what its calls say, in order; a string is an error's code."""
    cloud = Cloud(boto3.Session("a", "b", region_name=REGION), REGION)
    with ExitStack() as held:
        held.callback(cloud.close)
        for service, calls in answers.items():
            stub = Stubber(cloud.client(service))
            for method, answer in calls:
                if isinstance(answer, str):
                    stub.add_client_error(method, answer)
                else:
                    stub.add_response(method, answer)  # refused where the service's model has no such answer
            held.enter_context(stub)
            if service in ("sts", "s3", "kms"):
                cloud._clients[(service, True, REGION)] = cloud.client(service)
        yield cloud


def told(findings: list[Finding], verdict: str) -> str:
    """What was found with that verdict, and the advice."""
    return "\n".join(f"{one.found} → {one.advice}" for one in findings if one.verdict == verdict)


def judged(check: Check, facts: Any, what: Wanted | None = None) -> list[Finding]:
    found = list(check.judge(what or wanted(), facts))
    assert all(one.advice for one in found if one.verdict != "ok"), "a finding without advice"
    assert found, "a check that says nothing"
    return found
