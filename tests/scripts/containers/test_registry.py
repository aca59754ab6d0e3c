"""A registry is asked the way it wants: without a password, with one, or by token; nobody else is told it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from scripts.containers.registry import Registry
from scripts.faults import OperationFailed

BASIC = f"Basic {base64.b64encode(b'me:word').decode()}"
CONFIG = json.dumps({"config": {"Labels": {"org.opencontainers.image.version": "1"}}}).encode()
MANIFEST = json.dumps({"config": {"digest": "sha256:c0ffee"}}).encode()


class Double(BaseHTTPRequestHandler):
    """What a registry that wants `scheme` answers; blobs lie at another address, as those of clouds do."""

    scheme: ClassVar[str] = ""
    seen: ClassVar[list[tuple[str, str | None]]] = []
    elsewhere: ClassVar[str] = ""
    tags: ClassVar[list[str]] = [f"t{number:03}" for number in range(250)]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        authorization = self.headers["Authorization"]
        self.seen.append((path, authorization))
        wanted = {"": None, "Basic": BASIC, "Bearer": "Bearer ticket"}[self.scheme]
        if path == "/token":
            granted = authorization == BASIC and "scope=repository%3Ahouse%2Fkv%3Apull" in query
            self._say({"token": "ticket"} if granted else {"token": "none"})
        elif path == "/store":
            self._send(200, CONFIG)
        elif authorization != wanted:
            realm = f'Bearer realm="http://{self.headers["Host"]}/token",service="s",scope="repository:house/kv:pull"'
            self._send(401, b"", {"WWW-Authenticate": realm if self.scheme == "Bearer" else 'Basic realm="r"'})
        elif path == "/v2/house/kv/manifests/one":
            self._send(200, MANIFEST)
        elif path == "/v2/house/kv/blobs/sha256:c0ffee":
            self._send(307, b"", {"Location": f"{self.elsewhere}/store"})
        elif path == "/v2/house/kv/tags/list":
            last = query.partition("last=")[2]
            rest = [tag for tag in self.tags if tag > last]
            self._say({"tags": rest[:100]})
        elif path == "/v2/house/page/tags/list":
            self._send(200, b"<html>")
        else:
            self._send(404, b"{}")

    def _say(self, document: Any) -> None:
        self._send(200, json.dumps(document).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def addresses() -> Iterator[list[str]]:
    """HOST:PORT of the registry, and of the store that its blobs lie in."""
    Double.scheme, Double.seen = "", []
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Double) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    found = [f"127.0.0.1:{server.server_port}" for server in servers]
    Double.elsewhere = f"http://localhost:{servers[1].server_port}"
    yield found
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def registry(addresses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry for which docker keeps the password."""
    entry = {"auth": BASIC.removeprefix("Basic ")}
    (tmp_path / "config.json").write_text(json.dumps({"auths": {addresses[0]: entry}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return Registry(f"{addresses[0]}/house")


@pytest.mark.parametrize("scheme", ["", "Basic", "Bearer"])
def test_each_way_to_be_let_in(registry: Registry, scheme: str) -> None:
    Double.scheme = scheme
    manifest = registry.manifest("kv", "one")
    assert manifest is not None
    assert manifest.digest == f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
    assert manifest.ids == {manifest.digest, "sha256:c0ffee"}
    asked = len(Double.seen)
    assert registry.manifest("kv", "two") is None
    assert len(Double.seen) == asked + 1, "what let us in is kept"


def test_a_store_of_blobs_is_not_told_the_password(registry: Registry) -> None:
    Double.scheme = "Basic"
    manifest = registry.manifest("kv", "one")
    assert manifest is not None
    assert registry.labels("kv", manifest) == {"org.opencontainers.image.version": "1"}
    assert dict(Double.seen)["/store"] is None


def test_tags_come_in_pages(registry: Registry) -> None:
    assert registry.tags("kv") == Double.tags
    assert registry.tags("absent") == []


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_who_has_no_password_is_told_to_log_in(
    registry: Registry, tmp_path: Path, scheme: str, addresses: list[str]
) -> None:
    Double.scheme = scheme
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(OperationFailed, match=f"docker login {addresses[0]}"):
        registry.manifest("kv", "one")


def test_what_is_no_registry_is_said(registry: Registry) -> None:
    with pytest.raises(OperationFailed, match="is the address right"):
        registry.tags("page")


@pytest.mark.parametrize("prefix", ["https://registry.invalid/x", "registry.invalid/UPPER", "", "a b"])
def test_what_is_no_prefix_is_said(prefix: str) -> None:
    with pytest.raises(OperationFailed, match="HOST"):
        Registry(prefix)


def test_other_hosts_are_asked_over_tls() -> None:
    with pytest.raises(OperationFailed, match="over https"):
        Registry("registry.invalid:1/x").tags("kv")
    with pytest.raises(OperationFailed, match="over http:"):
        Registry("registry.invalid:1/x", plain=True).tags("kv")
