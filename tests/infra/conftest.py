"""Fixtures for tests of the local target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.supervisord import Supervisord
from infra.paths import StackPaths
from tests.infra.project import make_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An isolated project, which `Engine` and `diphase` take for theirs."""
    return make_project(tmp_path / "project", monkeypatch)


@pytest.fixture
def daemon(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisord]:
    """A running supervisord, ended with all that it runs; its socket has a short path, whatever the test is called."""
    paths = StackPaths.of(tmp_path, "test", tmp_path_factory.mktemp("run"))
    running = Supervisord(paths.run)
    running.start(tmp_path / "supervisord.log")
    yield running
    running.stop(20.0)
