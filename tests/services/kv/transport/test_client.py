"""Whatever a server does wrong, at whichever step, the pull ends by its deadline in KvUnavailable and leaks nothing."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.common.errors import KvUnavailable
from services.common.settings import Transport
from services.common.wire import KvTransferParams
from services.kv.checksum import kv_checksum
from services.kv.pool import SharedPool
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.client import TransferClient
from services.kv.transport.protocol import HEADER, MAX_FRAME, Close, Grant, Open, Refuse, encode

BLOCK = 4096
HASTY = 0.3  # seconds, for servers that let one wait
LONG = 60.0


class FalseServer:
    """A pool with an honest beginning; how it goes on is the test's."""

    def __init__(self) -> None:
        self.pool = SharedPool(4, BLOCK)
        self.pool.array[:] = 5
        self.checksum = kv_checksum(self.pool.array, [1, 2])
        self.released = threading.Event()

    def grant(self, blocks: tuple[int, ...] = (1, 2), block_bytes: int = BLOCK, num_blocks: int = 4) -> Grant:
        return Grant(num_blocks, block_bytes, list(blocks), 100, self.checksum)

    def say(self, channel: Channel, data: bytes) -> None:
        channel.send_bytes(memoryview(data), Deadline(LONG))

    def wait(self) -> None:
        """Until the puller has given up."""
        self.released.wait(30)


Script = Callable[[FalseServer, Channel], None]


def frame(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


def silent(server: FalseServer, channel: Channel) -> None:
    server.wait()


def closing(server: FalseServer, channel: Channel) -> None:
    return


def garbage(server: FalseServer, channel: Channel) -> None:
    server.say(channel, frame(b"\xc1garbage"))


def http(server: FalseServer, channel: Channel) -> None:
    server.say(channel, b"HTTP/1.1 400 Bad Request\r\n\r\n")


def oversize(server: FalseServer, channel: Channel) -> None:
    server.say(channel, HEADER.pack(MAX_FRAME + 1))


def half_header(server: FalseServer, channel: Channel) -> None:
    server.say(channel, b"\0")


def half_frame(server: FalseServer, channel: Channel) -> None:
    server.say(channel, frame(encode(server.grant()))[:-3])


def half_frame_and_silence(server: FalseServer, channel: Channel) -> None:
    half_frame(server, channel)
    server.wait()


def wrong_message(server: FalseServer, channel: Channel) -> None:
    channel.send(Close(), Deadline(LONG))


def refusing(server: FalseServer, channel: Channel) -> None:
    channel.send(Refuse("lease", "not today"), Deadline(LONG))


def other_engine(server: FalseServer, channel: Channel) -> None:
    channel.send(Refuse("engine", "moved"), Deadline(LONG))


def other_blocks(server: FalseServer, channel: Channel) -> None:
    channel.send(
        server.grant((1, 3)), Deadline(LONG), server.pool.fd if channel.sock.family == socket.AF_UNIX else None
    )


def other_size(server: FalseServer, channel: Channel) -> None:
    grant = server.grant(block_bytes=BLOCK // 2, num_blocks=8)
    channel.send(grant, Deadline(LONG), server.pool.fd if channel.sock.family == socket.AF_UNIX else None)


WAITED = "not here within"

EITHER: list[tuple[Script, str]] = [
    (silent, WAITED),
    (closing, "closed"),
    (garbage, "not a message"),
    (http, "a frame of"),
    (oversize, "a frame of"),
    (half_header, "closed"),
    (half_frame, "closed"),
    (half_frame_and_silence, WAITED),
    (wrong_message, "Close where Grant was due"),
    (refusing, "refused: not today"),
    (other_engine, "refused: moved"),
    (other_blocks, "other blocks"),
    (other_size, "blocks of 2048 bytes"),
]


def grant_and_close(server: FalseServer, channel: Channel) -> None:
    channel.send(server.grant(), Deadline(LONG))


def grant_and_silence(server: FalseServer, channel: Channel) -> None:
    channel.send(server.grant(), Deadline(LONG))
    server.wait()


def half_the_bytes(server: FalseServer, channel: Channel) -> None:
    channel.send(server.grant(), Deadline(LONG))
    server.say(channel, bytes([5]) * (BLOCK + 17))


def half_the_bytes_and_silence(server: FalseServer, channel: Channel) -> None:
    half_the_bytes(server, channel)
    server.wait()


def a_trickle(server: FalseServer, channel: Channel) -> None:
    channel.send(server.grant(), Deadline(LONG))
    while not server.released.wait(0.002):
        server.say(channel, b"\5")


def wrong_bytes(server: FalseServer, channel: Channel) -> None:
    channel.send(server.grant(), Deadline(LONG))
    server.say(channel, bytes([5]) * (2 * BLOCK - 1) + b"\4")
    channel.receive(Deadline(LONG))


TCP: list[tuple[Script, str]] = [
    (grant_and_close, "closed"),
    (grant_and_silence, WAITED),
    (half_the_bytes, "closed"),
    (half_the_bytes_and_silence, WAITED),
    (a_trickle, WAITED),
    (wrong_bytes, "not those that were granted"),
]


def a_smaller_pool(server: FalseServer, channel: Channel) -> None:
    smaller = SharedPool(3, BLOCK)
    channel.send(server.grant(), Deadline(LONG), smaller.fd)
    smaller.close()


def a_pipe(server: FalseServer, channel: Channel) -> None:
    ends = os.pipe()
    channel.send(server.grant(), Deadline(LONG), ends[0])
    for end in ends:
        os.close(end)


def a_file(server: FalseServer, channel: Channel) -> None:
    descriptor = os.memfd_create("unsealed")
    os.ftruncate(descriptor, 4 * BLOCK)
    channel.send(server.grant(), Deadline(LONG), descriptor)
    os.close(descriptor)


def changed_meanwhile(server: FalseServer, channel: Channel) -> None:
    server.pool.array[2, 100] = 6
    channel.send(server.grant(), Deadline(LONG), server.pool.fd)
    channel.receive(Deadline(LONG))


SHM: list[tuple[Script, str]] = [
    (grant_and_close, "without the pool's descriptor"),
    (a_smaller_pool, "12288 bytes, not 4 times 4096"),
    (a_pipe, "0 bytes, not 4 times 4096"),
    (a_file, "could shrink"),
    (changed_meanwhile, "not those that were granted"),
]

CASES = [
    *((transport, *case) for transport in ("shm", "tcp") for case in EITHER),
    *(("tcp", *case) for case in TCP),
    *(("shm", *case) for case in SHM),
]


@contextmanager
def serving(script: Script, path: Path) -> Iterator[KvTransferParams]:
    """A server that answers every Open by the script and hangs up."""
    server = FalseServer()
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(path))
    unix.listen()
    tcp = socket.create_server(("127.0.0.1", 0))

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                channel = Channel(listener.accept()[0])
            except OSError:
                return
            try:
                assert isinstance(channel.receive(Deadline(LONG)), Open)
                script(server, channel)
            except OSError:  # the puller has hung up first
                pass
            channel.close()

    threads = [threading.Thread(target=serve, args=(listener,)) for listener in (unix, tcp)]
    for thread in threads:
        thread.start()
    try:
        yield KvTransferParams(
            remote_engine_id="e",
            remote_block_ids=[1, 2],
            remote_request_id="req-1",
            remote_host="127.0.0.1",
            remote_port=tcp.getsockname()[1],
            remote_socket=str(path),
            nonce="n",
            kv_checksum=server.checksum,
        )
    finally:
        server.released.set()
        for listener in (unix, tcp):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in threads:
            thread.join(30)
        server.pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize(("transport", "script", "says"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_every_fault_ends(tmp_path: Path, transport: Transport, script: Script, says: str) -> None:
    pool, client = SharedPool(8, BLOCK), TransferClient()
    before = len(os.listdir("/proc/self/fd"))
    with serving(script, tmp_path / "s") as handle:
        for _ in range(2):  # nothing that the first time left behind changes the second
            with pytest.raises(KvUnavailable, match=says):
                client.pull(handle, pool.array, [6, 7], transport, HASTY if says == WAITED else 30)
    client.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not pool.array[:6].any()
    pool.close()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_nobody_listens(tmp_path: Path, transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    handle = KvTransferParams(
        remote_engine_id="e", remote_block_ids=[0], remote_host="127.0.0.1", remote_port=port,
        remote_socket=str(tmp_path / "none"),
    )  # fmt: skip
    pool, client = SharedPool(1, BLOCK), TransferClient()
    with pytest.raises(KvUnavailable, match="transfer failed"):
        client.pull(handle, pool.array, [0], transport, 5)
    assert len(client._peers) == 0
    pool.close()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_nobody_accepts(tmp_path: Path, transport: Transport) -> None:
    """The kernel takes the connection, the process never does."""
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "s"))
    unix.listen(0)
    tcp = socket.create_server(("127.0.0.1", 0), backlog=0)
    handle = KvTransferParams(
        remote_engine_id="e", remote_block_ids=[0], remote_host="127.0.0.1", remote_port=tcp.getsockname()[1],
        remote_socket=str(tmp_path / "s"),
    )  # fmt: skip
    pool, client = SharedPool(1, BLOCK), TransferClient()
    for _ in range(4):
        with pytest.raises(KvUnavailable, match=WAITED):
            client.pull(handle, pool.array, [0], transport, 0.1)
    for sock in (unix, tcp):
        sock.close()
    pool.close()
