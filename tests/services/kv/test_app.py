"""The kv service over HTTP, and the client that workers use; once as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from services.common.errors import DeadlineExceeded, DiphaseError, InvalidRequest, UpstreamFailed
from services.common.http_client import HttpClient
from services.common.settings import KvSettings
from services.common.wire import KvTransferParams
from services.kv.app import KvApp
from services.kv.directory_client import DirectoryClient
from tests.ports import free_port
from tests.services.common.serving import serving

ROOT = Path(__file__).parents[3]
HANDLE = KvTransferParams(do_remote_prefill=True, remote_block_ids=[3, 1], nonce="n", num_tokens=100, expires_at=12.5)


class World:
    """A served directory, a client of it, and the clock in hand."""

    def __init__(self, **settings: int) -> None:
        self.now = 0.0
        self.kv = KvApp(KvSettings(instance="kv-0", port=1, **settings), clock=lambda: self.now)
        self.http = HttpClient()
        self.url = ""
        self.client = DirectoryClient(self.http, "")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[World]:
        async with serving(self.kv.app) as server:
            self.url = server.url
            self.client = DirectoryClient(self.http, server.url, timeout=10)
            yield self
            await self.http.close()

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        reply = await self.http.request(method, self.url + path, body, timeout=10)
        return reply.status, reply.body


def test_register_look_up_remove() -> None:
    async def run() -> None:
        async with World().serve() as world:
            client = world.client
            assert await client.look_up("req-1") is None
            await client.register("req-1", HANDLE)
            assert await client.look_up("req-1") == HANDLE
            _, metrics = await world.call("GET", "/metrics")
            assert b"diphase_kv_handles 1.0" in metrics
            await client.remove("req-1")
            await client.remove("req-1")
            assert await client.look_up("req-1") is None

    asyncio.run(run())


def test_handles_expire_and_give_way() -> None:
    async def run() -> None:
        async with World(kv_max_handles=2, kv_ttl_seconds=60).serve() as world:
            for name in ("a", "b", "c"):
                await world.client.register(name, HANDLE)
            assert await world.client.look_up("a") is None
            world.now = 60.0
            assert await world.client.look_up("c") is None
            _, metrics = await world.call("GET", "/metrics")
            assert b"diphase_kv_handles 0.0" in metrics

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/v1/handles/req-1", b"{", 400),
        ("PUT", "/v1/handles/req-1", b'{"remote_block_ids": "x"}', 400),
        ("PUT", "/v1/handles/req%201", b"{}", 400),
        ("PUT", "/v1/handles/" + "x" * 129, b"{}", 400),
        ("PUT", "/v1/handles/", b"{}", 400),
        ("PUT", "/v1/handles/a/b", b"{}", 400),
        ("PUT", "/v1/handles/req-1", b" " * (1 << 20) + b"{}", 413),
        ("POST", "/v1/handles/req-1", b"{}", 405),
        ("GET", "/v1/handles/req-1", b"", 404),
        ("DELETE", "/v1/handles/req-1", b"", 200),
        ("GET", "/v1/handle", b"", 404),
        ("GET", "/health", b"", 200),
        ("GET", "/ready", b"", 200),
    ],
)
def test_status(method: str, path: str, body: bytes, status: int) -> None:
    async def run() -> None:
        async with World().serve() as world:
            answered, answer = await world.call(method, path, body)
            assert answered == status
            assert answered == 200 or msgspec.json.decode(answer)["error"]["message"]

    asyncio.run(run())


def test_what_the_client_raises() -> None:
    async def run() -> None:
        async with World().serve() as world:
            with pytest.raises(InvalidRequest, match="request id"):
                await world.client.register("no spaces/please", HANDLE)
            hasty = DirectoryClient(world.http, world.url, timeout=0)
            with pytest.raises(DeadlineExceeded):
                await hasty.look_up("req-1")
        with pytest.raises(UpstreamFailed):
            await world.client.look_up("req-1")

    asyncio.run(run())


def test_a_silent_directory_costs_no_more_than_the_deadline() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            http = HttpClient()
            client = DirectoryClient(http, f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
            with pytest.raises(DeadlineExceeded):
                await client.register("req-1", HANDLE)
            await http.close()

    asyncio.run(run())


def test_as_a_process() -> None:
    port = free_port()
    environ = {**KvSettings(instance="kv-0", port=port, log_level="error").to_environ(), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", "services.kv"], cwd=ROOT, env=environ)
    try:
        asyncio.run(_use(f"http://127.0.0.1:{port}"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)


async def _use(url: str) -> None:
    http = HttpClient()
    client = DirectoryClient(http, url, timeout=10)
    async with asyncio.timeout(60):
        while True:
            try:
                await client.register("req-1", HANDLE)
                break
            except DiphaseError:  # not there yet
                await asyncio.sleep(0.05)
        assert await client.look_up("req-1") == HANDLE
    await http.close()


def test_wrong_settings_are_named() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "services.kv"],
        cwd=ROOT,
        env={"PATH": os.environ.get("PATH", ""), "PORT": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "INSTANCE" in result.stderr
    assert "PORT" in result.stderr
