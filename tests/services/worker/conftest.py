"""One fleet for the tests of a worker's HTTP; each test leaves it at rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.worker.fleet import Fleet, until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), model_path)
    try:
        fleet.start_all()
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def fleet(running: Fleet) -> Iterator[Fleet]:
    """The fleet, checked to be at rest afterwards."""
    yield running
    until("at rest", running.at_rest, 60)
