"""An AWS of this machine's own, and credentials that both boto3 and Pulumi find."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.toolchain.aws import moto

ACCOUNT = "111122223333"


@pytest.fixture(scope="module")
def server() -> Iterator[moto.Moto]:
    with moto.running() as running:
        yield running


@pytest.fixture
def cloud(server: moto.Moto, monkeypatch: pytest.MonkeyPatch) -> moto.Moto:
    """The server, spoken to as an administrator of ACCOUNT."""
    for name, value in server.credentials(ACCOUNT).items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    return server
