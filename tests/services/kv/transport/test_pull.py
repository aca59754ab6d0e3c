"""Pulls between two real processes, and what happens when one of them fails."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from services.common.errors import KvUnavailable
from services.common.settings import Transport
from services.common.tls import Certificates
from services.kv.pool import SharedPool
from services.kv.transport.client import Transfer, TransferClient
from tests.services.kv.transport.peer import ROOT, WAYS, PeerProcess, content, peer

BLOCK = 200_000  # bytes: no multiple of a page


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kv.sock"


@pytest.fixture
def server(socket: Path, tls: Path | None) -> Iterator[PeerProcess]:
    with peer(socket, tls=tls, num_blocks=32, block_bytes=BLOCK) as process:
        yield process


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    pool = SharedPool(40, BLOCK)
    yield pool
    pool.close()


@pytest.fixture
def client(tls: Path | None) -> Iterator[TransferClient]:
    client = TransferClient(Certificates.of("internal", tls))
    yield client
    client.close()


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Poll; fails if it does not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.01)


def baseline(server: PeerProcess) -> None:
    """Released leases have all their blocks back, in the end."""
    until(lambda: server.ask(counts=True)["blocks_held"] == 0)


@WAYS
def test_the_bytes_arrive_in_order(
    server: PeerProcess, pool: SharedPool, client: TransferClient, transport: Transport
) -> None:
    theirs, ours = [9, 3, 4, 5, 31, 0], [0, 39, 20, 21, 7, 8]
    handle = server.grant("req-1", theirs, seed=1)
    pool.array[:] = 255
    for _ in range(3):  # a lease may be read again, on the same connection
        pool.array[ours] = 0
        transfer = client.pull(handle, pool.array, ours, transport, 20)
        assert (transfer.transport, transfer.bytes) == (transport, 6 * BLOCK)
        assert np.array_equal(pool.array[ours], content(1, 6, BLOCK))
    others = sorted(set(range(40)) - set(ours))
    assert (pool.array[others] == 255).all()
    until(lambda: server.ask(counts=True)["served"] == 3)
    assert sorted(server.ask(release="req-1")["freed"]) == sorted(theirs)


@WAYS
def test_many_threads_pull_at_once(
    server: PeerProcess, pool: SharedPool, client: TransferClient, transport: Transport
) -> None:
    handles = [server.grant(f"req-{i}", range(4 * i, 4 * i + 4), seed=i) for i in range(8)]

    def pull(lane: int) -> list[Transfer]:
        blocks = range(4 * lane, 4 * lane + 4)
        done = []
        for _ in range(5):
            done.append(client.pull(handles[lane], pool.array, blocks, transport, 20))
            assert np.array_equal(pool.array[blocks], content(lane, 4, BLOCK))
        return done

    with ThreadPoolExecutor(8) as threads:
        assert sum(len(done) for done in threads.map(pull, range(8))) == 40
    for i in range(8):
        server.ask(release=f"req-{i}")
    baseline(server)


@WAYS
def test_altered_bytes_are_refused(
    server: PeerProcess, pool: SharedPool, client: TransferClient, transport: Transport
) -> None:
    handle = server.grant("req-1", [1, 2], seed=1)
    server.ask(corrupt=2)
    with pytest.raises(KvUnavailable, match="not those that were granted"):
        client.pull(handle, pool.array, [0, 1], transport, 20)
    server.ask(release="req-1")
    baseline(server)


FALSE: list[tuple[dict[str, Any], str]] = [
    ({"nonce": "0" * 32}, "earlier lease"),
    ({"remote_request_id": "req-2"}, "no KV is kept"),
    ({"remote_engine_id": "another"}, "not here any more"),
    ({"remote_block_ids": [2, 1]}, "other blocks"),
    ({"kv_checksum": "0" * 16}, "other blocks"),
    ({"remote_socket": None, "remote_host": None}, "serves no"),
]


@WAYS
def test_a_false_handle_is_refused(
    server: PeerProcess, pool: SharedPool, client: TransferClient, transport: Transport
) -> None:
    handle = server.grant("req-1", [1, 2], seed=1)
    for fault, says in FALSE:
        with pytest.raises(KvUnavailable, match=says):
            client.pull(msgspec.structs.replace(handle, **fault), pool.array, [0, 1], transport, 20)
        assert client.pull(handle, pool.array, [0, 1], transport, 20).bytes == 2 * BLOCK
    server.ask(release="req-1")
    baseline(server)


@WAYS
def test_released_and_expired_kv_is_refused(
    socket: Path, pool: SharedPool, client: TransferClient, transport: Transport, tls: Path | None
) -> None:
    with peer(socket, tls=tls, num_blocks=4, block_bytes=BLOCK, lease_seconds=0.01) as server:
        handle = server.grant("req-1", [0], seed=1)
        time.sleep(0.02)
        with pytest.raises(KvUnavailable, match="expired"):
            client.pull(handle, pool.array, [0], transport, 20)
        assert server.ask(sweep=True)["expired"] == 1
        with pytest.raises(KvUnavailable, match="no KV is kept"):
            client.pull(handle, pool.array, [0], transport, 20)


@WAYS
def test_blocks_of_another_size_are_refused(server: PeerProcess, client: TransferClient, transport: Transport) -> None:
    handle = server.grant("req-1", [0], seed=1)
    other = SharedPool(4, BLOCK + 4)
    with pytest.raises(KvUnavailable, match=f"ours have {BLOCK + 4}"):
        client.pull(handle, other.array, [0], transport, 20)
    other.close()


def test_wrong_arguments(server: PeerProcess, pool: SharedPool, client: TransferClient) -> None:
    handle = server.grant("req-1", [0, 1], seed=1)
    for blocks in ([0], [0, 40], [-1, 0]):
        with pytest.raises(ValueError, match="block"):
            client.pull(handle, pool.array, blocks, "shm", 20)


@WAYS
def test_a_killed_server_is_unavailable_and_its_memory_let_go(
    socket: Path, pool: SharedPool, client: TransferClient, transport: Transport, tls: Path | None
) -> None:
    with peer(socket, tls=tls, num_blocks=4, block_bytes=BLOCK) as server:
        handle = server.grant("req-1", [0], seed=1)
        client.pull(handle, pool.array, [0], transport, 20)
        assert _mapped_pools() == (2 if transport == "shm" else 1)
        server.kill()
        with pytest.raises(KvUnavailable):
            client.pull(handle, pool.array, [0], transport, 20)
        assert _mapped_pools() == 1


def test_sweep_lets_go_of_a_killed_server(
    socket: Path, pool: SharedPool, client: TransferClient, tls: Path | None
) -> None:
    with peer(socket, tls=tls, num_blocks=4, block_bytes=BLOCK) as server:
        client.pull(server.grant("req-1", [0], seed=1), pool.array, [0], "shm", 20)
        client.sweep()
        assert _mapped_pools() == 2
        server.kill()
        client.sweep()
        assert _mapped_pools() == 1


@WAYS
def test_a_server_that_comes_back_is_another_engine(
    socket: Path, pool: SharedPool, client: TransferClient, transport: Transport, tls: Path | None
) -> None:
    with peer(socket, tls=tls, num_blocks=4, block_bytes=BLOCK) as first:
        old = first.grant("req-1", [0], seed=1)
        client.pull(old, pool.array, [0], transport, 20)
        first.kill()
    with peer(socket, tls=tls, num_blocks=6, block_bytes=BLOCK) as second:
        new = second.grant("req-1", [0], seed=2)
        old.remote_port = new.remote_port
        with pytest.raises(KvUnavailable, match="not here any more"):
            client.pull(old, pool.array, [0], transport, 20)
        client.pull(new, pool.array, [1], transport, 20)
        assert np.array_equal(pool.array[[1]], content(2, 1, BLOCK))
        with pytest.raises(KvUnavailable, match="not here any more"):  # and a late one of the first does no harm
            client.pull(old, pool.array, [0], transport, 20)
        client.pull(new, pool.array, [2], transport, 20)


def _mapped_pools() -> int:
    """How many KV pools this process maps; the kernel's own account."""
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    return sum("diphase-kv" in line for line in Path("/proc/self/maps").read_text().splitlines())


VANISHING = """
import json, pathlib, sys, time, msgspec
from services.common.tls import Certificates
from services.common.wire import KvTransferParams
from services.kv.transport import shm, tcp
from services.kv.transport.channel import Deadline
from services.kv.transport.protocol import *
handle, transport = msgspec.convert(json.loads(sys.argv[1]), KvTransferParams), sys.argv[2]
tls = Certificates.of("internal", pathlib.Path(sys.argv[3]) if sys.argv[3] else None)
deadline = Deadline(30)
channel = (shm.connect(handle.remote_socket, deadline) if transport == "shm"
           else tcp.connect(handle.remote_host, handle.remote_port, deadline, tls))
channel.send(Open(VERSION, handle.remote_engine_id, handle.remote_request_id, handle.nonce, transport), deadline)
assert isinstance(channel.receive(deadline), Grant)
print("granted", flush=True)
time.sleep(60)
"""


@WAYS
def test_a_puller_killed_in_its_transfer_unpins(server: PeerProcess, transport: Transport, tls: Path | None) -> None:
    handle = server.grant("req-1", range(16), seed=1)
    puller = subprocess.Popen(
        [sys.executable, "-c", VANISHING, json.dumps(msgspec.to_builtins(handle)), transport, str(tls or "")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert puller.stdout is not None
    try:
        assert puller.stdout.readline() == b"granted\n"
        assert server.ask(release="req-1")["blocks_held"] == 16  # pinned
    finally:
        puller.kill()
        puller.wait(10)
        puller.stdout.close()
    baseline(server)
    assert sorted(server.ask(counts=True)["freed"]) == list(range(16))


@WAYS
def test_nothing_leaks_over_many_pulls(
    server: PeerProcess, pool: SharedPool, client: TransferClient, transport: Transport
) -> None:
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    open_before: set[int] = set()
    for i in itertools.count():
        handle = server.grant("req-1", [0], seed=1)
        client.pull(handle, pool.array, [0], transport, 20)
        with pytest.raises(KvUnavailable):
            client.pull(msgspec.structs.replace(handle, nonce="x"), pool.array, [0], transport, 20)
        if i == 3:
            open_before = set(map(int, os.listdir("/proc/self/fd")))
        if i == 50:
            break
    assert len(os.listdir("/proc/self/fd")) == len(open_before)
    assert threading.active_count() < 10
