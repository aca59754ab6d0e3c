"""The server against clients that behave badly, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.errors import Absent, DiphaseError, EngineFailed
from services.common.http_client import HttpClient
from services.common.http_server import App, Handler, Request, Response, Stream, json_response
from tests.ports import free_port
from tests.services.common.serving import Served, serving, until

ROOT = Path(__file__).parents[3]


@contextlib.asynccontextmanager
async def app_of(handler: Handler, method: str = "POST") -> AsyncIterator[tuple[Served, App, HttpClient]]:
    app = App()
    app.route(method, "/", handler)
    http = HttpClient()
    async with serving(app) as served:
        try:
            yield served, app, http
        finally:
            await http.close()


async def raw(served: Served, data: bytes) -> bytes:
    """What comes back for `data` until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def echo(request: Request) -> Response | Stream:
    return Response(await request.body(limit=1000, timeout=0.3))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit(chunked: bool) -> None:
    """Announced and not announced; the connection is usable afterwards."""
    size = 300_000
    head = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % size
    body = b"%x\r\n" % size + b"x" * size + b"\r\n0\r\n\r\n" if chunked else b"x" * size
    request = b"POST / HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n" + body
    good = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"

    async def main() -> bytes:
        async with app_of(echo) as (served, _, _):
            return await raw(served, request + good)

    answer = asyncio.run(main())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body_too_large" in answer
    assert answer.endswith(b"\r\n\r\nok")


def test_a_body_that_does_not_come() -> None:
    async def main() -> bytes:
        async with app_of(echo) as (served, _, _):
            return await raw(served, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")

    answer = asyncio.run(main())
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"request_timeout" in answer


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_goes_cancels_its_handler(streamed: bool) -> None:
    gone: list[str] = []

    async def wait() -> AsyncIterator[bytes]:
        try:
            yield b"data: 1\n\n"
            await asyncio.sleep(60)
        finally:
            gone.append("stream")

    async def handler(request: Request) -> Response | Stream:
        await request.body(1000, 1)
        if streamed:
            return Stream(wait())
        try:
            await asyncio.sleep(60)
        finally:
            gone.append("whole")
        return Response()

    async def main() -> None:
        async with app_of(handler) as (served, app, _):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            await until(lambda: app.inflight == 1)
            await asyncio.sleep(0.1)
            writer.transport.abort()
            await until(lambda: bool(gone), 1.0)
            await until(lambda: app.inflight == 0)

    asyncio.run(main())
    assert gone == ["stream" if streamed else "whole"]


def test_a_client_that_goes_while_it_sends() -> None:
    async def main() -> None:
        async with app_of(echo) as (served, app, http):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
            await until(lambda: app.inflight == 1)
            writer.transport.abort()
            await until(lambda: app.inflight == 0)
            assert (await http.request("POST", served.url + "/", b"next", timeout=5)).body == b"next"

    asyncio.run(main())


def test_what_goes_wrong_inside_stays_inside() -> None:
    async def handler(_request: Request) -> Response | Stream:
        raise RuntimeError("a secret")

    async def main() -> None:
        async with app_of(handler) as (served, _, http):
            reply = await http.request("POST", served.url + "/", timeout=5)
            assert reply.status == 500
            assert b"secret" not in reply.body
            assert json.loads(reply.body)["error"]["code"] == "internal_error"

    asyncio.run(main())


async def failing(error: Exception, *items: bytes, after: float = 0.0) -> AsyncIterator[bytes]:
    for item in items:
        yield item
    await asyncio.sleep(after)
    raise error


def event(error: DiphaseError) -> bytes:
    return b"error: " + error.code.encode()


def test_a_stream_that_fails_before_it_begins_has_a_status() -> None:
    async def handler(_request: Request) -> Response | Stream:
        return Stream(failing(Absent("nobody")), silence=5, headers=((b"x-mine", b"1"),), error_event=event)

    async def main() -> None:
        async with app_of(handler) as (served, _, http):
            reply = await http.request("POST", served.url + "/", timeout=5)
            assert (reply.status, reply.headers["retry-after"], reply.headers["x-mine"]) == (503, "5", "1")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "code"), [(EngineFailed("x"), b"engine_failed"), (RuntimeError("a secret"), b"internal_error")]
)
def test_a_stream_that_has_begun_tells_its_error(error: Exception, code: bytes) -> None:
    async def handler(_request: Request) -> Response | Stream:
        return Stream(failing(error, b"one "), silence=5, error_event=event)

    async def main() -> None:
        async with app_of(handler) as (served, _, http):
            reply = await http.request("POST", served.url + "/", timeout=5)
            assert (reply.status, reply.body) == (200, b"one error: " + code)

    asyncio.run(main())


def test_a_stream_without_error_events_is_cut() -> None:
    async def handler(_request: Request) -> Response | Stream:
        return Stream(failing(EngineFailed("x"), b"one"))

    async def main() -> bytes:
        async with app_of(handler) as (served, _, _):
            return await raw(served, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")

    answer = asyncio.run(main())
    assert b"\r\n3\r\none\r\n" in answer
    assert not answer.endswith(b"0\r\n\r\n")


def test_keepalives_fill_silence() -> None:
    """They come before the first item and between items, and an error after one is an event."""

    async def slow() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.35)
        for i in range(20):
            yield b"%d " % i
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.35)
        raise EngineFailed("x")

    async def handler(_request: Request) -> Response | Stream:
        return Stream(slow(), silence=0.1, keepalive=b"~", error_event=event)

    async def main() -> bytes:
        async with app_of(handler) as (served, _, http):
            return (await http.request("POST", served.url + "/", timeout=5)).body

    body = asyncio.run(main())
    before, _, rest = body.partition(b"0 ")
    assert set(before) == {ord("~")}
    assert rest.endswith(b"error: engine_failed")
    assert rest.removesuffix(b"error: engine_failed").endswith(b"~")
    assert [int(word) for word in body.removesuffix(b"error: engine_failed").replace(b"~", b"").split()] == list(
        range(20)
    )


def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler ends although it never closes."""
    monkeypatch.setattr("services.common.http_answers.STALLED_SECONDS", 0.2)
    closed: list[bool] = []

    async def flood() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65536
        finally:
            closed.append(True)

    async def handler(_request: Request) -> Response | Stream:
        return Stream(flood(), silence=0.1)

    async def main() -> None:
        async with app_of(handler) as (served, app, _):
            peer = socket.create_connection(("127.0.0.1", served.port))
            peer.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            await until(lambda: app.inflight == 1)
            await until(lambda: bool(closed))
            await until(lambda: app.inflight == 0)
            peer.close()

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel has no such time limit")
@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch, streamed: bool) -> None:
    """With its handler over, the connection would wait for ever to be rid of what was sent."""
    monkeypatch.setattr("services.common.http_answers.STALLED_SECONDS", 0.2)
    monkeypatch.setattr("services.common.http_protocol.UNREAD_SECONDS", 0.5)

    async def flood() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536

    async def handler(_request: Request) -> Response | Stream:
        return Stream(flood(), silence=0.1) if streamed else Response(b"x" * 20_000_000)

    async def main() -> None:
        async with app_of(handler) as (served, app, _):
            with socket.create_connection(("127.0.0.1", served.port)) as peer:
                peer.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
                await until(lambda: bool(served.server_state.connections))
                await until(lambda: app.inflight == 0 and not served.server_state.connections)

    asyncio.run(main())


def test_a_client_that_asks_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.http_protocol.FIRST_HEAD_SECONDS", 0.3)

    async def main() -> None:
        async with app_of(echo) as (served, _, http):
            assert await raw(served, b"POST / HTTP/1.1\r\nHost:") == b""
            assert (await http.request("POST", served.url + "/", b"one", timeout=5)).body == b"one"
            await asyncio.sleep(0.5)
            assert len(served.server_state.connections) == 1, "one that has asked is kept"
            assert (await http.request("POST", served.url + "/", b"two", timeout=5)).body == b"two"

    asyncio.run(main())


def test_paths_and_parameters() -> None:
    async def get(request: Request) -> Response | Stream:
        return json_response(request.params)

    async def main() -> None:
        app = App()
        app.route("GET", "/v1/models/{id}", get)
        http = HttpClient()
        async with serving(app) as served:
            for path, status, body in (
                ("/v1/models/a", 200, ["a"]),
                ("/v1/models/owner/name", 200, ["owner/name"]),
                ("/v1/models/*", 200, ["*"]),
                ("/v1/models", 404, None),
                ("/nowhere", 404, None),
            ):
                reply = await http.request("GET", served.url + path, timeout=5)
                assert (reply.status, json.loads(reply.body) if body else None) == (status, body)
            assert (await http.request("POST", served.url + "/v1/models/a", timeout=5)).status == 405
            assert (await http.request("GET", served.url + "/health", timeout=5)).status == 200
            assert (
                b"diphase_http_requests_total" in (await http.request("GET", served.url + "/metrics", timeout=5)).body
            )
            app.draining = True
            reply = await http.request("GET", served.url + "/ready", timeout=5)
            assert (reply.status, json.loads(reply.body)["reason"]) == (503, "draining")
            await http.close()

    asyncio.run(main())


ROLE = """
import asyncio, os, sys
import uvloop
from services.common import http_server, logs, role
from services.common.settings import RoleSettings

async def slow(request):
    await request.body(1000, 5)
    print("begun", flush=True)
    try:
        await asyncio.sleep(float(sys.argv[1]))
    finally:
        await asyncio.sleep(0)
        print("given back", flush=True)
    return http_server.Response(b"done")

async def main():
    app = http_server.App()
    app.route("POST", "/slow", slow)
    logs.configure("test", "error")
    await role.serve(app, RoleSettings(instance="test", port=int(sys.argv[2]), drain_seconds=2.0))
    print("ended", flush=True)

uvloop.run(main())
"""


@pytest.mark.parametrize(("seconds", "whole"), [(0.7, True), (30.0, False)])
def test_sigterm_lets_running_requests_end(seconds: float, whole: bool) -> None:
    """Within drain_seconds; what takes longer is cut and gives back what it holds. The role ends with status 0."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", ROLE, str(seconds), str(port)],
        cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip

    async def main() -> None:
        deadline = asyncio.get_running_loop().time() + 20
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.05)
        writer.write(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"begun\n"
        process.send_signal(signal.SIGTERM)
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.endswith(b"done") == whole
        writer.transport.abort()
        assert await asyncio.to_thread(process.stdout.read) == b"given back\nended\n"
        assert await asyncio.to_thread(process.wait, 10) == 0
        await asyncio.sleep(0)

    try:
        asyncio.run(main())
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
