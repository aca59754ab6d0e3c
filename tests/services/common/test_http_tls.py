"""HTTP between roles and at the edge by TLS, over real sockets, on the loop that roles run on and on asyncio's own."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from services.common.errors import UpstreamFailed
from services.common.http_client import HttpClient
from services.common.http_server import App, Request, Response, Stream
from services.common.settings import RoleSettings
from services.common.tls import INTERNAL_NAME, Certificates
from tests.ports import free_port
from tests.services.common.certificates import Authority, mount, write
from tests.services.common.serving import Served, serving, until

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.tls.CHECK_SECONDS", 0.0)


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Path:
    return mount(tmp_path / "tls", authority.internal())


async def _echo(request: Request) -> Response | Stream:
    return Response(await request.body(limit=64 << 20, timeout=10))


def echo() -> App:
    app = App()
    app.route("POST", "/", _echo)
    return app


@contextlib.asynccontextmanager
async def client(folder: Path | None) -> AsyncIterator[HttpClient]:
    made = HttpClient(certificates=Certificates.of("internal", folder))
    try:
        yield made
    finally:
        await made.close()


async def ask(http: HttpClient, served: Served, body: bytes = b"hello") -> bytes:
    return (await http.request("POST", served.url + "/", body, timeout=10)).body


async def answered(served: Served, context: ssl.SSLContext | None, name: str | None = INTERNAL_NAME) -> bytes:
    """What a client with any context gets for a request; raises OSError."""
    secure = {} if context is None else {"ssl": context, "server_hostname": name}
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, **secure)
    try:
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def is_refused(served: Served, context: ssl.SSLContext | None, name: str = INTERNAL_NAME) -> bool:
    """Whether such a client gets no answer. By TLS 1.3 it may learn so only when it reads."""
    try:
        return not await answered(served, context, name)
    except (ssl.SSLError, ConnectionError):
        return True


def stranger(*certificate: Path, trust: Path, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """A client of no role: with the certificate of a folder, if any."""
    context = ssl.create_default_context(cafile=trust)
    context.maximum_version = newest
    for given in certificate:
        context.load_cert_chain(given / "tls.crt", given / "tls.key")
    return context


def test_roles_speak_to_each_other(run: Run, folder: Path) -> None:
    """Whatever the address is: the name in the certificate is diphase.internal. Connections are kept."""

    async def main() -> None:
        async with serving(echo(), tls=Certificates("internal", folder)) as served, client(folder) as http:
            assert served.url.startswith("https://127.0.0.1:")
            for size in (0, 5, 20 << 20):
                assert await ask(http, served, b"x" * size) == b"x" * size
            assert len(served.server_state.connections) == 1

    run(main())


def test_who_shows_no_certificate_of_ours_is_not_served(
    run: Run, tmp_path: Path, folder: Path, authority: Authority
) -> None:
    other = write(tmp_path / "other", Authority("another").internal())
    ours = folder / "ca.crt"

    async def main() -> None:
        tls = Certificates("internal", folder)
        app = echo()
        async with serving(app, tls=tls) as served:
            assert (await answered(served, stranger(folder, trust=ours))).endswith(b"\r\n\r\nok")
            refused = {
                "no certificate": stranger(trust=ours),
                "another CA's": stranger(other, trust=ours),
                "TLS 1.2": stranger(folder, trust=ours, newest=ssl.TLSVersion.TLSv1_2),
                "no TLS": None,
            }
            for kind, context in refused.items():
                assert await is_refused(served, context), kind
            assert app.inflight == 0
            async with client(None) as plain:
                with pytest.raises(UpstreamFailed):
                    await plain.request("GET", f"http://127.0.0.1:{served.port}/health", timeout=5)
            async with client(other) as http:
                with pytest.raises(UpstreamFailed, match="certificate verify failed"):
                    await ask(http, served)

    run(main())


@pytest.mark.parametrize("kind", ["another name", "another CA", "no TLS"])
def test_a_server_that_is_no_role_is_not_believed(
    run: Run, tmp_path: Path, folder: Path, authority: Authority, kind: str
) -> None:
    false = {
        "another name": {**authority.issue("127.0.0.1", "gateway"), "ca.crt": authority.pem},
        "another CA": Authority("another").internal(),
    }

    async def main() -> None:
        heard: list[bytes] = []
        over = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.read())
            writer.transport.abort()
            over.set()

        context = None
        if kind in false:
            at = write(tmp_path / "false", false[kind])
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(at / "tls.crt", at / "tls.key")
        server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with client(folder) as http:
            with pytest.raises(UpstreamFailed, match="no connection to https"):
                await http.request("POST", url, b"secret", timeout=5)
        if context is None:
            await over.wait()  # with TLS there is no connection that could be talked on
        server.close()
        assert b"secret" not in b"".join(heard)

    run(main())


def test_rotation_without_a_restart(run: Run, tmp_path: Path, authority: Authority) -> None:
    """Server and client change at different times, from one CA to another; every request is answered."""
    new = Authority("new")
    at_server, at_client = tmp_path / "server", tmp_path / "client"

    async def main() -> None:
        for folder in (at_server, at_client):
            mount(folder, authority.internal())
        async with serving(echo(), tls=Certificates("internal", at_server)) as served, client(at_client) as http:
            current = http._certificates
            assert current is not None
            kept: list[object] = []
            for files in (authority.internal(), authority.internal(new), new.internal(authority), new.internal()):
                for folder in (at_server, at_client):
                    mount(folder, files)
                    for _ in range(2):  # the first on a connection made before, the second on one made since
                        assert await ask(http, served) == b"hello"
                        current.current()  # as a probe of the role does
                (connection,) = served.server_state.connections
                assert connection not in kept, "the connection is older than the certificates"
                kept.append(connection)
            old = write(tmp_path / "old", authority.internal())
            assert await is_refused(served, stranger(old, trust=at_server / "ca.crt"))

    run(main())


def test_the_edge_serves_anybody(run: Run, tmp_path: Path, authority: Authority) -> None:
    """Without a certificate of theirs, by TLS 1.2 or newer and HTTP/1.1; its own may change meanwhile."""
    folder = mount(tmp_path / "edge", authority.issue("api.example"))
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.pem)

    async def main() -> None:
        async with serving(echo(), tls=Certificates("edge", folder)) as served:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                for _ in range(2):
                    answer = await answered(served, stranger(trust=ca, newest=version), "api.example")
                    assert answer.endswith(b"\r\n\r\nok")
                    mount(folder, authority.issue("api.example"))
            offering = stranger(trust=ca)
            offering.set_alpn_protocols(["h2", "http/1.1"])
            _, writer = await asyncio.open_connection(
                "127.0.0.1", served.port, ssl=offering, server_hostname="api.example"
            )
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            writer.transport.abort()
            old = stranger(trust=ca, newest=ssl.TLSVersion.TLSv1_2)
            with pytest.warns(DeprecationWarning, match="TLSv1"):
                old.minimum_version = ssl.TLSVersion.TLSv1
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            old.set_ciphers("DEFAULT:@SECLEVEL=0")
            assert await is_refused(served, old, "api.example")

    run(main())


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_slow_handshake_ends(run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path, sent: bytes) -> None:
    """A client that says nothing, half of its hello, or no hello, keeps no connection; others are served meanwhile."""
    monkeypatch.setattr("services.common.http_ports.HANDSHAKE_SECONDS", 0.4)

    async def main() -> None:
        async with serving(echo(), tls=Certificates("internal", folder)) as served, client(folder) as http:
            peers = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(5)]
            for peer in peers:
                peer.sendall(sent)
            assert await ask(http, served) == b"hello"
            for peer in peers:
                peer.settimeout(10)
                with contextlib.suppress(ConnectionError):
                    while await asyncio.to_thread(peer.recv, 1000):
                        pass
                peer.close()

    run(main())


def test_a_stream_whose_client_goes_is_cancelled(run: Run, folder: Path) -> None:
    gone: list[bool] = []

    async def items() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)
        finally:
            gone.append(True)

    async def get(request: Request) -> Response | Stream:
        await request.body(1, 1)
        return Stream(items())

    async def main() -> None:
        app = App()
        app.route("GET", "/", get)
        async with serving(app, tls=Certificates("internal", folder)) as served, client(folder) as http:
            async with http.stream("GET", served.url + "/", timeout=10) as reply:
                assert set(await reply.__anext__()) == {ord("x")}
            await until(lambda: bool(gone))
            await until(lambda: app.inflight == 0)

    run(main())


def test_a_client_that_never_says_goodbye_does_not_delay_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """It leaves the server's close_notify unanswered, as one does that has lost its network."""
    monkeypatch.setattr("services.common.http_ports.GOODBYE_SECONDS", 0.3)

    async def main() -> None:
        async with serving(echo(), tls=Certificates("internal", folder)) as served:
            context = Certificates("internal", folder).client()

            def talk() -> ssl.SSLSocket:
                raw = socket.create_connection(("127.0.0.1", served.port), timeout=10)
                secure = context.wrap_socket(raw, server_hostname=INTERNAL_NAME)
                secure.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok")
                assert secure.recv(1000).startswith(b"HTTP/1.1 200")
                return secure

            peer = await asyncio.to_thread(talk)
            assert len(served.server_state.connections) == 1
            started = time.monotonic()
            served.config.timeout_graceful_shutdown = 30
            served.should_exit = True
            await until(lambda: not served.server_state.connections)
            assert time.monotonic() - started < 20
            peer.close()

    run(main())


def test_probes_have_a_port_of_their_own(run: Run, folder: Path) -> None:
    """Plain, with the app's own answers and nothing else; strangers' port has no metrics then."""
    fault: list[str] = []

    async def main() -> None:
        app = App(ready=lambda: next(iter(fault), None), public=True)
        app.route("POST", "/", _echo)
        probe_port = free_port()
        probes = f"http://127.0.0.1:{probe_port}"
        async with (
            serving(app, tls=Certificates("internal", folder), probe_port=probe_port) as served,
            client(folder) as http,
        ):

            async def status(url: str, method: str = "GET") -> int:
                return (await http.request(method, url, timeout=5)).status

            for path, there, here in (
                ("/health", 200, 200),
                ("/ready", 200, 200),
                ("/metrics", 404, 200),
                ("/", 405, 404),
            ):
                assert (await status(served.url + path), await status(probes + path)) == (there, here), path
            fault.append("not today")
            assert (await status(served.url + "/ready"), await status(probes + "/ready")) == (503, 503)
            fault.clear()
            app.draining = True
            assert (await status(probes + "/ready"), await status(probes + "/health")) == (503, 200)

    run(main())


def test_an_expired_certificate_is_not_ready(folder: Path) -> None:
    settings = RoleSettings(instance="a", port=1, tls_folder=folder)
    assert settings.tls_folder is not None
    tls = Certificates("internal", settings.tls_folder)
    app = App()
    app.require(tls.fault)
    app.require(lambda: "another")
    assert b"another" in asyncio.run(app._get_ready(None)).body  # type: ignore[arg-type]
    mount(folder, Authority().internal(life=-datetime.timedelta(hours=1)))
    assert b"expired" in asyncio.run(app._get_ready(None)).body  # type: ignore[arg-type]
