"""A role's process: what it says of wrong settings, and the order in which its ports end."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from services.common.settings import KvSettings, RoleSettings
from tests.ports import free_port
from tests.services.common.certificates import Authority, mount

ROOT = Path(__file__).parents[3]
SLOW = """
import asyncio, os
import uvloop
from services.common import http_server, role
from services.common.settings import RoleSettings
from services.common.tls import Certificates

async def slow(request):
    await request.body(1000, 5)
    print("begun", flush=True)
    await asyncio.sleep(1.5)
    return http_server.Response(b"done")

async def drain():
    print("draining", flush=True)

async def main(settings):
    app = http_server.App()
    app.route("POST", "/slow", slow)
    await role.serve(app, settings, drain, Certificates.of("internal", settings.tls_folder))
    print("ended", flush=True)

role.run("slow", RoleSettings, main)
"""


def start(*program: str, settings: RoleSettings) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *program],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **settings.to_environ()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until(what: str, condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time"
        time.sleep(0.01)


def status(url: str) -> int:
    """Of GET; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def test_probes_are_answered_until_the_drain_is_over(tmp_path: Path) -> None:
    """Not ready from SIGTERM on, alive all the time, and the request that runs ends well."""
    settings = RoleSettings(
        instance="slow", port=free_port(), probe_port=free_port(), drain_seconds=10.0, log_level="error",
        tls_folder=mount(tmp_path / "tls", Authority().internal()),
    )  # fmt: skip
    probes = f"http://127.0.0.1:{settings.probe_port}"
    process = start("-c", SLOW, settings=settings)
    try:
        assert process.stdout is not None
        until("ready", lambda: status(probes + "/ready") == 200)
        context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.crt")
        context.load_cert_chain(tmp_path / "tls" / "tls.crt", tmp_path / "tls" / "tls.key")
        raw = socket.create_connection(("127.0.0.1", settings.port), timeout=20)
        with context.wrap_socket(raw, server_hostname="diphase.internal") as peer:
            peer.sendall(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok")
            assert process.stdout.readline() == b"begun\n"
            process.terminate()
            assert process.stdout.readline() == b"draining\n"
            assert (status(probes + "/ready"), status(probes + "/health")) == (503, 200)
            until("no more connections", lambda: not _opens(settings.port))
            assert (status(probes + "/ready"), status(probes + "/health")) == (503, 200)
            assert peer.makefile("rb").read().endswith(b"done")
        assert process.stdout.readline() == b"ended\n"
        assert status(probes + "/health") == 0
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def _opens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("name", ["tls", "probes"])
def test_a_role_that_cannot_begin_says_why(tmp_path: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        wrong, message = {
            "tls": ({"tls_folder": tmp_path / "nowhere"}, f"kv: TLS_FOLDER: cannot read {tmp_path}/nowhere/tls.crt"),
            "probes": ({"probe_port": taken}, "address already in use"),
        }[name]
        process = start("-m", "services.kv", settings=KvSettings(instance="kv-0", port=free_port(), **wrong))
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert message in said.decode()
    assert "Traceback" not in said.decode()
