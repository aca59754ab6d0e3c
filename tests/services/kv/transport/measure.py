"""Prints what a handoff of KV costs between two processes: `python tests/services/kv/transport/measure.py`.

Blocks have the size that SmolLM2-135M in float32 has with 64 tokens in each. Milliseconds are the puller's, from the
call of `pull` to its return: question, grant, copy and checksum. With --busy another thread of the puller keeps the GIL
as an engine's Python code does.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from pathlib import Path

from services.common.settings import Transport
from services.common.tls import Certificates
from services.kv.pool import SharedPool
from services.kv.transport.client import TransferClient
from tests.services.common.certificates import Authority, mount
from tests.services.kv.transport.peer import PeerProcess, peer

BLOCK_BYTES = 2_949_120


def _spin(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def _measure(
    server: PeerProcess, transport: Transport, blocks: int, repeats: int, tls: Certificates | None = None
) -> None:
    handle = server.grant(f"req-{transport}-{blocks}", range(blocks), seed=1)
    pool, client = SharedPool(blocks, BLOCK_BYTES), TransferClient(tls)
    seconds = [client.pull(handle, pool.array, range(blocks), transport, 20.0).seconds for _ in range(repeats + 1)]
    client.close()
    first, rest = seconds[0] * 1e3, sorted(s * 1e3 for s in seconds[1:])
    print(
        f"{'tls' if tls else transport}  {blocks:3d} blocks  {blocks * BLOCK_BYTES / 1e6:6.1f} MB   "
        f"first {first:6.1f} ms   least {rest[0]:6.1f}   median {statistics.median(rest):6.1f}   worst {rest[-1]:6.1f}"
    )
    pool.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    stop = threading.Event()
    if args.busy:
        threading.Thread(target=_spin, args=(stop,), daemon=True).start()
    with (
        tempfile.TemporaryDirectory() as name,
        peer(Path(name) / "kv.sock", num_blocks=32, block_bytes=BLOCK_BYTES) as server,
        peer(
            Path(name) / "tls.sock",
            num_blocks=32,
            block_bytes=BLOCK_BYTES,
            tls=mount(Path(name) / "tls", Authority().internal()),
        ) as secure,
    ):
        certificates = Certificates("internal", Path(name) / "tls")
        for blocks in (8, 24):
            _measure(server, "shm", blocks, args.repeats)
            _measure(server, "tcp", blocks, args.repeats)
            _measure(secure, "tcp", blocks, args.repeats, certificates)
    stop.set()


if __name__ == "__main__":
    main()
