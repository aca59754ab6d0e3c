"""Real schedulers, one pair for all tests of a session, and the gateway's surroundings."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.common.settings import RoleSettings, SchedulerSettings
from services.gateway.tokenization import Tokenization
from tests.ports import free_port

ROOT = Path(__file__).parents[3]


def start_role(package: str, settings: RoleSettings) -> subprocess.Popen[bytes]:
    """A role as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", f"services.{package}"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **settings.to_environ()},
    )


def start_scheduler(name: str, **more: Any) -> tuple[subprocess.Popen[bytes], str]:
    """A scheduler process, and its URL."""
    port = free_port()
    settings = SchedulerSettings(
        instance=name,
        port=port,
        log_level="error",
        scheduler_max_queue=4,
        scheduler_heartbeat_timeout_seconds=0.6,
        scheduler_absent_grace_seconds=2.0,
        exit_with_parent=True,
        drain_seconds=1.0,
        **more,
    )
    return start_role("scheduler", settings), f"{'https' if settings.tls_folder else 'http'}://127.0.0.1:{port}"


def wait_ready(url: str) -> None:
    """Until the role answers /ready."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=5):
                return
        except OSError:
            assert time.monotonic() < deadline, f"{url} is not ready"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def scheduler_urls() -> Iterator[list[str]]:
    """Two replicas."""
    started = [start_scheduler(f"scheduler-{i}") for i in range(2)]
    for _, url in started:
        wait_ready(url)
    yield [url for _, url in started]
    for process, _ in started:
        process.terminate()
    for process, _ in started:
        process.wait(10)


@pytest.fixture(scope="session")
def tokenization(model_path: Path) -> Tokenization:
    """The real model's tokenizer."""
    return Tokenization(model_path, 8192)
