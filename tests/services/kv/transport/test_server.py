"""Whatever a puller does wrong, its lease is unpinned, its connection ends, and others are served."""

from __future__ import annotations

import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.common.settings import Transport
from services.common.wire import KvTransferParams
from services.kv.pool import SharedPool
from services.kv.transport import shm, tcp
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.client import TransferClient
from services.kv.transport.listeners import listen_unix
from services.kv.transport.protocol import HEADER, MAX_FRAME, VERSION, Close, Grant, Open, Refuse
from services.kv.transport.server import TransferServer
from tests.services.kv.transport.peer import WAYS, Prefill

BLOCK = 4 << 20  # bytes: more than the buffers of a socket hold
LONG = 30.0


@contextmanager
def serving(path: Path, timeout: float, tls: Path | None) -> Iterator[Prefill]:
    prefill = Prefill(str(path), num_blocks=4, block_bytes=BLOCK, timeout=timeout, tls=tls)
    try:
        yield prefill
    finally:
        prefill.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("kv-")]


@pytest.fixture
def prefill(tmp_path: Path, tls: Path | None) -> Iterator[Prefill]:
    with serving(tmp_path / "s", LONG, tls) as prefill:
        yield prefill


@pytest.fixture
def hasty(tmp_path: Path, tls: Path | None) -> Iterator[Prefill]:
    with serving(tmp_path / "s", 1.0, tls) as prefill:
        yield prefill


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Poll; fails if it does not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.005)


def connect(prefill: Prefill, handle: KvTransferParams, transport: Transport) -> Channel:
    if transport == "shm":
        return shm.connect(handle.remote_socket or "", Deadline(LONG))
    return tcp.connect(handle.remote_host or "", handle.remote_port or 0, Deadline(LONG), prefill.certificates)


def question(handle: KvTransferParams, transport: Transport) -> Open:
    return Open(VERSION, handle.remote_engine_id or "", "req-1", handle.nonce or "", transport)


def asked(prefill: Prefill, handle: KvTransferParams, transport: Transport) -> Channel:
    """A connection that has its grant."""
    channel = connect(prefill, handle, transport)
    channel.send(question(handle, transport), Deadline(LONG))
    assert isinstance(channel.receive(Deadline(LONG)), Grant)
    return channel


def all_back(prefill: Prefill) -> None:
    """Release, and see every block come back."""
    prefill.keeper.release("req-1")
    until(lambda: prefill.keeper.counts().blocks_held == 0)
    assert sorted(prefill.freed) == [0, 1]


def ended(channel: Channel) -> bool:
    """Whether the server has closed the connection, whatever it said before."""
    try:
        while channel.sock.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True


@WAYS
@pytest.mark.parametrize(
    "data",
    [HEADER.pack(3) + b"\xc1no", HEADER.pack(MAX_FRAME + 1), HEADER.pack(0), b"GET / HTTP/1.1\r\n\r\n"],
    ids=["garbage", "oversize", "empty", "http"],
)
def test_no_message_is_refused_and_the_connection_closed(prefill: Prefill, transport: Transport, data: bytes) -> None:
    handle = prefill.grant("req-1", [0, 1])
    channel = connect(prefill, handle, transport)
    channel.send_bytes(memoryview(data), Deadline(LONG))
    answer = channel.receive(Deadline(LONG))
    assert isinstance(answer, Refuse)
    assert answer.code == "protocol"
    assert ended(channel)
    channel.close()
    all_back(prefill)


@WAYS
@pytest.mark.parametrize("data", [b"", b"\0", HEADER.pack(50) + b"half"], ids=["nothing", "half header", "half frame"])
def test_a_puller_that_stays_silent_is_dropped(hasty: Prefill, transport: Transport, data: bytes) -> None:
    handle = hasty.grant("req-1", [0, 1])
    channel = connect(hasty, handle, transport)
    channel.send_bytes(memoryview(data), Deadline(LONG))
    assert ended(channel)
    channel.close()
    all_back(hasty)


@WAYS
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"version": VERSION + 1}, "version"),
        ({"engine_id": "another"}, "engine"),
        ({"nonce": ""}, "lease"),
        ({"nonce": "ü" * 16}, "lease"),
        ({"request_id": "req-2"}, "lease"),
    ],
)
def test_a_refusal_leaves_the_connection_usable(
    prefill: Prefill, transport: Transport, change: dict[str, Any], code: str
) -> None:
    handle = prefill.grant("req-1", [0, 1])
    channel = connect(prefill, handle, transport)
    good = question(handle, transport)
    channel.send(msgspec.structs.replace(good, **change), Deadline(LONG))
    answer = channel.receive(Deadline(LONG))
    assert isinstance(answer, Refuse)
    assert answer.code == code
    channel.send(good, Deadline(LONG))
    assert isinstance(channel.receive(Deadline(LONG)), Grant)
    channel.close()
    all_back(prefill)


@WAYS
def test_the_transport_is_that_of_the_socket(prefill: Prefill, transport: Transport) -> None:
    handle = prefill.grant("req-1", [0, 1])
    channel = connect(prefill, handle, transport)
    channel.send(question(handle, "tcp" if transport == "shm" else "shm"), Deadline(LONG))
    answer = channel.receive(Deadline(LONG))
    assert isinstance(answer, Refuse)
    assert answer.code == "transport"
    channel.close()


@WAYS
def test_pinned_until_close(prefill: Prefill, transport: Transport) -> None:
    channel = asked(prefill, prefill.grant("req-1", [0, 1]), transport)
    if transport == "tcp":
        channel.receive_into(memoryview(bytearray(2 * BLOCK)), Deadline(LONG))
    prefill.keeper.release("req-1")
    assert prefill.freed == []
    channel.send(Close(), Deadline(LONG))
    all_back(prefill)
    until(lambda: prefill.served)
    assert (prefill.served[0].transport, prefill.served[0].bytes) == (transport, 2 * BLOCK)
    channel.close()


@WAYS
def test_a_connection_lost_after_the_grant_unpins(prefill: Prefill, transport: Transport) -> None:
    asked(prefill, prefill.grant("req-1", [0, 1]), transport).close()
    all_back(prefill)
    assert prefill.served == []


@WAYS
def test_a_puller_that_never_closes_is_unpinned_at_the_deadline(hasty: Prefill, transport: Transport) -> None:
    """With tcp it does not read either: the server's send is what waits."""
    channel = asked(hasty, hasty.grant("req-1", [0, 1]), transport)
    all_back(hasty)
    assert ended(channel)
    channel.close()


@WAYS
def test_another_open_instead_of_close_unpins(prefill: Prefill, transport: Transport) -> None:
    handle = prefill.grant("req-1", [0, 1])
    channel = asked(prefill, handle, transport)
    if transport == "tcp":
        channel.receive_into(memoryview(bytearray(2 * BLOCK)), Deadline(LONG))
    channel.send(question(handle, transport), Deadline(LONG))
    assert ended(channel)
    channel.close()
    all_back(prefill)


def small_server(prefill: Prefill, path: Path, *, timeout: float) -> TransferServer:
    """A second server for the same leases, with two connections at most."""
    return TransferServer(prefill.keeper, prefill.engine_id, unix_path=path, timeout=timeout, max_connections=2)


def test_an_idle_connection_gives_way(prefill: Prefill, tmp_path: Path) -> None:
    server = small_server(prefill, tmp_path / "t", timeout=LONG)
    handle = msgspec.structs.replace(prefill.grant("req-1", [0, 1]), remote_socket=str(tmp_path / "t"))
    pool, clients = SharedPool(2, BLOCK), [TransferClient() for _ in range(4)]
    for _ in range(2):  # the second time each finds its connection closed, and makes another
        for client in clients:
            client.pull(handle, pool.array, [0, 1], "shm", LONG)
    for client in clients:
        client.close()
    server.stop()
    pool.close()
    all_back(prefill)


def test_newcomers_wait_while_all_are_busy(prefill: Prefill, tmp_path: Path) -> None:
    server = small_server(prefill, tmp_path / "t", timeout=LONG)
    handle = msgspec.structs.replace(prefill.grant("req-1", [0, 1]), remote_socket=str(tmp_path / "t"))
    busy = [asked(prefill, handle, "shm") for _ in range(2)]
    third = connect(prefill, handle, "shm")
    third.send(question(handle, "shm"), Deadline(LONG))
    with pytest.raises(TimeoutError):
        third.receive(Deadline(0.2))
    busy[0].close()
    assert isinstance(third.receive(Deadline(LONG)), Grant)
    for channel in (*busy, third):
        channel.close()
    server.stop()
    all_back(prefill)


@WAYS
def test_stop_breaks_off_what_runs(prefill: Prefill, transport: Transport) -> None:
    handle = prefill.grant("req-1", [0, 1])
    running = asked(prefill, handle, transport)
    waiting = connect(prefill, handle, transport)
    prefill.server.stop()
    prefill.server.stop()
    assert ended(running)
    assert ended(waiting)
    assert not Path(prefill.socket).exists()
    with pytest.raises(OSError, match=r"refused|No such file"):
        connect(prefill, handle, transport)
    running.close()
    waiting.close()
    all_back(prefill)


def test_the_socket_is_for_this_user_only(prefill: Prefill) -> None:
    assert stat.S_IMODE(Path(prefill.socket).stat().st_mode) == 0o600


def test_a_socket_left_behind_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    listener = listen_unix(path)
    with pytest.raises(OSError, match="another process"):
        listen_unix(path)
    assert path.exists()
    listener.close()


def test_a_server_that_cannot_listen_leaves_the_other_socket_alone(prefill: Prefill, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="another process"):
        TransferServer(prefill.keeper, "e", unix_path=Path(prefill.socket), timeout=1)
    assert Path(prefill.socket).exists()
    with pytest.raises(OSError, match="in use"):
        TransferServer(
            prefill.keeper,
            "e",
            unix_path=tmp_path / "t",
            tcp_host="127.0.0.1",
            tcp_port=prefill.server.tcp_port or 0,
            timeout=1,
        )
    assert not (tmp_path / "t").exists()


def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 103 bytes"):
        listen_unix(tmp_path / ("x" * 100))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="in use"):
        listen_unix(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
