"""An AWS for all tests of a session: moto, Terraform's provider before it, and Pulumi's plugin made of that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from tests.infra.aws.terraform import NOT_FOUND, find_provider
from tests.toolchain.aws import moto, planned_only, service
from tests.toolchain.aws.accounts import Accounts
from tests.toolchain.aws.cluster import Cluster
from tests.toolchain.aws.ledger import Ledger
from tests.toolchain.aws.plugin import Plugin

LEDGER = Ledger()


@pytest.fixture(scope="session")
def cloud() -> Iterator[moto.Moto]:
    with moto.running() as running:
        yield running


@pytest.fixture(scope="session")
def attached(cloud: moto.Moto) -> Iterator[Mapping[str, str]]:
    """The environment of an engine that works on moto."""
    binary = find_provider(os.environ)
    if binary is None:
        pytest.skip(NOT_FOUND)
    accounts = Accounts(binary, cloud)
    try:
        with service.serving({"aws": Plugin(accounts, LEDGER), "kubernetes": Cluster(LEDGER)}) as environ:
            yield environ
    finally:
        accounts.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not done as AWS would, and what took longest."""
    for kind in sorted(LEDGER.planned):
        terminalreporter.write_line(f"planned, never made: {kind} ({planned_only.REASONS[kind]})")
    for kind, times in sorted(LEDGER.kept.items()):
        terminalreporter.write_line(f"kept as declared, never run: {times} {kind}")
    for what, times, seconds in LEDGER.slowest(8):
        terminalreporter.write_line(f"{what}: {times}×, at most {seconds:.1f} s")
