"""A real registry for tests, on an address of the loopback network that nobody else takes."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_SECONDS = 30.0
STOP_SECONDS = 10.0
MAX_BYTES = 4 * 1024**3


@contextmanager
def running(program: str, storage: Path, address: str, more: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A registry at `address` (HOST:PORT) over `storage`, whose layers are kept from run to run and whose tags are not.

    `more` is further configuration of the distribution registry, such as {"auth": …}.
    """
    _forget(storage)
    configuration = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": {"addr": address},
        **(more or {}),
    }
    file = storage / "registry.json"
    file.write_text(json.dumps(configuration))
    with open(storage / "log", "wb") as log:
        environ = {"OTEL_TRACES_EXPORTER": "none"}
        registry = subprocess.Popen([program, "serve", str(file)], stdout=log, stderr=log, env=environ)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(address):
            if registry.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the registry did not start:\n{(storage / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield address
    finally:
        registry.terminate()
        registry.wait(STOP_SECONDS)


def _forget(storage: Path) -> None:
    if storage.exists() and sum(path.stat().st_size for path in storage.rglob("*") if path.is_file()) > MAX_BYTES:
        shutil.rmtree(storage)
    storage.mkdir(parents=True, exist_ok=True)
    for manifests in storage.rglob("_manifests"):
        shutil.rmtree(manifests)


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status in (http.client.OK, http.client.UNAUTHORIZED)
    except OSError:
        return False
    finally:
        connection.close()
