"""KV by TCP inside TLS: who may pull, from whom one pulls, and certificates that change meanwhile."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from services.common.errors import KvUnavailable
from services.common.tls import Certificates
from services.kv.pool import SharedPool
from services.kv.transport import tcp
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.client import TransferClient
from services.kv.transport.protocol import VERSION, Open
from services.kv.transport.secure import SecureChannel
from tests.services.common.certificates import Authority, mount
from tests.services.kv.transport.peer import Prefill, content

BLOCK = 300_000
LONG = 30.0


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.tls.CHECK_SECONDS", 0.0)


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Path:
    return mount(tmp_path / "server", authority.internal())


@pytest.fixture
def prefill(tmp_path: Path, folder: Path) -> Iterator[Prefill]:
    made = Prefill(str(tmp_path / "s"), num_blocks=4, block_bytes=BLOCK, timeout=LONG, tls=folder)
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    made = SharedPool(4, BLOCK)
    yield made
    made.close()


def pull(client: TransferClient, prefill: Prefill, pool: SharedPool, timeout: float = LONG) -> None:
    handle = prefill.grant("req-1", [0, 1], seed=3)
    pool.array[:] = 0
    client.pull(handle, pool.array, [2, 3], "tcp", timeout)
    assert np.array_equal(pool.array[[2, 3]], content(3, 2, BLOCK))


def test_a_stranger_pulls_nothing(tmp_path: Path, prefill: Prefill, pool: SharedPool, folder: Path) -> None:
    """Neither with another CA's certificate nor without TLS; those who belong here are served meanwhile."""
    other = mount(tmp_path / "other", Authority("another").internal())
    ours = TransferClient(Certificates("internal", folder))
    for certificates in (Certificates("internal", other), None):
        stranger = TransferClient(certificates)
        with pytest.raises(KvUnavailable):
            pull(stranger, prefill, pool)
        assert not pool.array.any()
        pull(ours, prefill, pool)
        stranger.close()
    assert len(prefill.served) <= 2
    ours.close()


def test_a_client_that_trusts_the_server_and_shows_nothing_is_refused(prefill: Prefill, authority: Authority) -> None:
    """It believes the handshake to be over, and learns the truth with the first answer."""
    handle = prefill.grant("req-1", [0])
    context = ssl.create_default_context(cadata=authority.pem.decode())
    raw = socket.create_connection((handle.remote_host or "", handle.remote_port or 0), timeout=LONG)
    with context.wrap_socket(raw, server_hostname="diphase.internal") as naked, pytest.raises(OSError, match="alert"):
        naked.recv(1)


def test_a_server_without_tls_gets_no_question(tmp_path: Path, pool: SharedPool, folder: Path) -> None:
    plain = Prefill(str(tmp_path / "s"), num_blocks=4, block_bytes=BLOCK, timeout=LONG)
    client = TransferClient(Certificates("internal", folder))
    with pytest.raises(KvUnavailable, match="transfer failed"):
        pull(client, plain, pool)
    client.close()
    plain.close()


def test_another_name_is_not_believed(tmp_path: Path, pool: SharedPool, folder: Path, authority: Authority) -> None:
    false = Prefill(str(tmp_path / "s"), num_blocks=4, block_bytes=BLOCK, timeout=LONG, tls=folder)
    at = mount(tmp_path / "false", {**authority.issue("gateway.example"), "ca.crt": authority.pem})
    assert false.certificates is not None
    false.certificates.current().server.load_cert_chain(at / "tls.crt", at / "tls.key")
    client = TransferClient(Certificates("internal", folder))
    with pytest.raises(KvUnavailable, match=r"not valid for 'diphase\.internal'"):
        pull(client, false, pool)
    client.close()
    false.close()


def test_a_server_that_does_not_shake_hands_is_left_at_the_deadline(pool: SharedPool, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        tcp.connect("127.0.0.1", silent.getsockname()[1], Deadline(0.3), Certificates("internal", folder))


def test_a_client_that_does_not_shake_hands_is_dropped(
    prefill: Prefill, pool: SharedPool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.kv.transport.server.HANDSHAKE_SECONDS", 0.3)
    handle = prefill.grant("req-1", [0])
    peers = [Channel(socket.create_connection(("127.0.0.1", handle.remote_port or 0))) for _ in range(3)]
    peers[1].send_bytes(memoryview(b"\x16\x03\x01\x02\x00\x01"), Deadline(LONG))
    peers[2].send(Open(VERSION, prefill.engine_id, "req-1", handle.nonce or "", "tcp"), Deadline(LONG))
    client = TransferClient(Certificates("internal", folder))
    pull(client, prefill, pool)
    for peer in peers:
        peer.sock.settimeout(LONG)
        try:
            while peer.sock.recv(1000):  # at most an alert
                pass
        except ConnectionResetError:
            pass
        peer.close()
    client.close()


def test_rotation_between_pulls(tmp_path: Path, prefill: Prefill, pool: SharedPool, authority: Authority) -> None:
    """From one CA to another, one side after the other; connections from before are let go."""
    new, mine = Authority("new"), mount(tmp_path / "mine", authority.internal())
    client = TransferClient(Certificates("internal", mine))
    for files in (authority.internal(), authority.internal(new), new.internal(authority), new.internal()):
        for folder in (tmp_path / "server", mine):
            mount(folder, files)
            client.sweep()
            pull(client, prefill, pool)
        client._certificates.current()  # type: ignore[union-attr]  # as a probe of the worker does
        client.sweep()
        assert not any(peer.idle for peer in client._peers._peers.values())
    old = TransferClient(Certificates("internal", mount(tmp_path / "old", authority.internal())))
    with pytest.raises(KvUnavailable):
        pull(old, prefill, pool)
    old.close()
    client.close()


def test_a_transfer_is_bounded_though_its_bytes_trickle(folder: Path) -> None:
    """OpenSSL is in the middle of a record all the time, which would take minutes."""
    certificates = Certificates("internal", folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            channel = SecureChannel(listener.accept()[0], certificates, server_side=True)
            channel.begin(Deadline(LONG))
            try:
                for byte in b"\x17\x03\x03\x40\x00" + bytes(0x4000):  # a record, past TLS
                    socket.socket.send(channel.sock, bytes((byte,)))
                    time.sleep(0.01)
            except OSError:
                channel.close()

        thread = threading.Thread(target=serve)
        thread.start()
        channel = tcp.connect("127.0.0.1", listener.getsockname()[1], Deadline(LONG), certificates)
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.receive_into(memoryview(bytearray(100)), Deadline(0.4))
        assert time.monotonic() - started < 20
        channel.close()
        thread.join(20)
