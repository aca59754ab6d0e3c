"""A prefill worker's side of KV in a process of its own: pool, leases and transfer server, without an engine.

`python peer.py CONFIG` with CONFIG as JSON: {socket, num_blocks, block_bytes, timeout, lease_seconds, tls}. It writes
one JSON line when it serves and one for each command on stdin:
{"grant": id, "blocks": [...], "seed": n}, {"corrupt": block}, {"release": id}, {"sweep": true}, {"counts": true}.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from services.common import logs
from services.common.tls import Certificates
from services.common.wire import KvTransferParams, Layout
from services.kv.handle import make_handle
from services.kv.keeper import LeaseKeeper
from services.kv.pool import SharedPool
from services.kv.transport.server import Served, TransferServer

ROOT = Path(__file__).parents[4]
WAYS = pytest.mark.parametrize(
    ("transport", "tls"),
    [("shm", False), ("tcp", False), ("tcp", True)],
    ids=["shm", "tcp", "tls"],
    indirect=["tls"],
)
LAYOUT = Layout("float32", 64, 2, 1, 8)
TIMEOUT = 30.0


def content(seed: int, blocks: int, block_bytes: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """What a grant with this seed holds: both sides of a test can make it."""
    return np.random.default_rng(seed).integers(0, 256, (blocks, block_bytes), np.uint8)


class Prefill:
    """The parts; also used inside a test's own process."""

    def __init__(
        self,
        socket: str,
        *,
        num_blocks: int,
        block_bytes: int,
        timeout: float = 5.0,
        lease_seconds: float = 30.0,
        tls: str | Path | None = None,
    ) -> None:
        self.certificates = Certificates.of("internal", Path(tls) if tls else None)
        self.engine_id = uuid.uuid4().hex
        self.socket = socket
        self.pool = SharedPool(num_blocks, block_bytes)
        self.freed: list[int] = []
        self.served: list[Served] = []
        self.keeper = LeaseKeeper(self.pool, self.freed.extend, lease_seconds=lease_seconds, ttl_seconds=300)
        self.server = TransferServer(
            self.keeper,
            self.engine_id,
            unix_path=Path(socket),
            tcp_host="127.0.0.1",
            certificates=self.certificates,
            timeout=timeout,
            on_served=self.served.append,
        )

    def grant(self, request_id: str, blocks: Sequence[int], seed: int = 0) -> KvTransferParams:
        """Fill blocks with the seed's content and lease them."""
        self.pool.array[list(blocks)] = content(seed, len(blocks), self.pool.block_bytes)
        tokens = len(blocks) * LAYOUT.block_size
        lease = self.keeper.grant(request_id, blocks, tokens)
        return make_handle(
            lease,
            engine_id=self.engine_id,
            model="m",
            revision="r",
            layout=LAYOUT,
            prompt=range(tokens),
            lease_url="http://127.0.0.1:1",
            host="127.0.0.1",
            port=self.server.tcp_port,
            socket=self.socket,
        )

    def close(self) -> None:
        """Stop serving and unmap."""
        self.server.stop()
        self.pool.close()


class PeerProcess:
    """A Prefill in another process."""

    def __init__(self, socket: Path, **config: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, json.dumps({"socket": str(socket), **config}, default=str)],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._answer()

    def grant(self, request_id: str, blocks: Sequence[int], seed: int = 0) -> KvTransferParams:
        """See Prefill.grant."""
        return msgspec.convert(self.ask(grant=request_id, blocks=list(blocks), seed=seed), KvTransferParams)

    def ask(self, **command: Any) -> Any:
        """One command, and its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(TIMEOUT)

    def close(self) -> None:
        """End the process, whatever state it is in."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT)
        finally:
            self.process.kill()
            self.process.wait(TIMEOUT)
            self.process.stdout.close()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        watchdog = threading.Timer(TIMEOUT, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
            watchdog.join()
        assert line, f"the peer ended with status {self.process.wait(TIMEOUT)}"
        return json.loads(line)


@contextmanager
def peer(socket: Path, **config: Any) -> Iterator[PeerProcess]:
    """A PeerProcess that is ended whatever happens."""
    process = PeerProcess(socket, **config)
    try:
        yield process
    finally:
        process.close()


def _do(prefill: Prefill, command: dict[str, Any]) -> Any:
    if "grant" in command:
        return msgspec.to_builtins(prefill.grant(command["grant"], command["blocks"], command["seed"]))
    if "corrupt" in command:
        prefill.pool.array[command["corrupt"], -1] ^= 1
    elif "release" in command:
        prefill.keeper.release(command["release"])
    elif "sweep" in command:
        prefill.keeper.sweep()
    return {**msgspec.to_builtins(prefill.keeper.counts()), "freed": prefill.freed, "served": len(prefill.served)}


def _main() -> None:
    logs.configure("peer", "error")  # to stderr: stdout is for answers
    prefill = Prefill(**json.loads(sys.argv[1]))
    print(json.dumps({"engine_id": prefill.engine_id}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_do(prefill, json.loads(line))), flush=True)
    prefill.close()


if __name__ == "__main__":
    _main()
