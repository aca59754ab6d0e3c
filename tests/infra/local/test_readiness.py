"""Waiting for roles: ready, ended, or too slow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from infra.local.readiness import Watched, await_ready
from infra.local.supervisord import LocalError, Supervisord
from tests.infra.project import ROLE
from tests.ports import free_port


def start(daemon: Supervisord, folder: Path, name: str, **environ: str) -> Watched:
    port = free_port()
    log = folder / f"{name}.log"
    settings = {"INSTANCE": name, "PORT": str(port), **environ}
    daemon.put(name, [sys.executable, str(ROLE)], settings, folder, log, 10.0)
    return Watched(name, f"http://127.0.0.1:{port}", log)


def test_it_returns_when_all_are_ready(daemon: Supervisord, tmp_path: Path) -> None:
    await_ready(daemon, [start(daemon, tmp_path, "a"), start(daemon, tmp_path, "b", READY_AFTER="0.5")], 20.0)


def test_a_role_that_ends_is_named_with_the_end_of_its_log(daemon: Supervisord, tmp_path: Path) -> None:
    roles = [start(daemon, tmp_path, "a"), start(daemon, tmp_path, "b", FAIL="no such model")]
    with pytest.raises(LocalError, match=r"b ended while it started[\s\S]*cannot go on: no such model"):
        await_ready(daemon, roles, 60.0)


def test_a_role_that_is_too_slow_is_named_with_the_key_that_gives_it_longer(
    daemon: Supervisord, tmp_path: Path
) -> None:
    roles = [start(daemon, tmp_path, "a"), start(daemon, tmp_path, "b", READY_AFTER="60")]
    with pytest.raises(LocalError, match=r"not ready within 2 s \(diphase:local.readySeconds\): b\. b's log ends with"):
        await_ready(daemon, roles, 2.0)


def test_a_role_that_is_not_supervised_is_named(daemon: Supervisord, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="ghost is not under supervision"):
        await_ready(daemon, [Watched("ghost", "http://127.0.0.1:1", tmp_path / "log")], 5.0)
