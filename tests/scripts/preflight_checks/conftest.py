"""An AWS of this machine's own, and how a stack's role sees it."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from scripts.preflight_checks.cloud import Cloud
from tests.scripts.preflight_checks.asked import ACCOUNT, REGION
from tests.toolchain.aws import moto


@pytest.fixture(scope="module")
def server() -> Iterator[moto.Moto]:
    with moto.running() as running:
        yield running


@pytest.fixture
def cloud(server: moto.Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    for name, value in server.credentials(ACCOUNT).items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    made = Cloud(boto3.Session(region_name=REGION), REGION, f"arn:aws:iam::{ACCOUNT}:role/deploy")
    yield made
    made.close()
