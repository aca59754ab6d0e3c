"""A worker's side of the KV handoff: the leases that it grants and the KV that it pulls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from services.common import logs
from services.common.errors import DiphaseError, KvUnavailable
from services.common.http_client import HttpClient
from services.common.settings import WorkerSettings
from services.common.tls import Certificates
from services.common.wire import KvTransferParams, LeaseRequest
from services.kv.directory_client import DirectoryClient
from services.kv.handle import make_handle, verify
from services.kv.keeper import LeaseKeeper
from services.kv.lease import Lease
from services.kv.pool import SharedPool
from services.kv.transport.client import TransferClient
from services.kv.transport.server import Served, TransferServer
from services.worker import metrics
from services.worker.engine.protocol import Engine

MAX_NOTICES = 256  # calls to the kv service under way at once; beyond them notices are dropped, and counted
_log = logs.get()


class Handoff:
    """Lives on the event loop; pulls run in the engine's fetch threads."""

    def __init__(
        self,
        settings: WorkerSettings,
        engine_id: str,
        engine: Engine,
        pool: SharedPool,
        client: HttpClient,
        tls: Certificates | None = None,
    ) -> None:
        self._settings = settings
        self.engine_id = engine_id
        self._engine = engine
        self._pool = pool
        self._directory = DirectoryClient(client, settings.kv_url)
        self._notices: set[asyncio.Task[None]] = set()
        self._puller = TransferClient(tls)
        self._keeper = LeaseKeeper(
            pool, engine.free, lease_seconds=settings.kv_lease_seconds, ttl_seconds=settings.kv_ttl_seconds
        )
        # Only the transport that the stack names is served: KV never moves over another one unnoticed.
        shared = settings.kv_transport == "shm"
        self._server = TransferServer(
            self._keeper,
            engine_id,
            unix_path=settings.kv_socket if shared else None,
            tcp_host=None if shared else settings.kv_transfer_host,
            tcp_port=settings.kv_transfer_port,
            certificates=tls,
            timeout=settings.kv_transfer_timeout_seconds,
            on_served=_count_served,
        )
        metrics.watch_leases(self._keeper.counts)

    def close(self) -> None:
        """Stop serving and pulling."""
        self._server.stop()
        self._puller.close()

    # -- the prefill side

    @property
    def open_leases(self) -> int:
        """Leases that somebody may still read."""
        return len(self._keeper)

    async def grant(
        self, request_id: str, prompt: Sequence[int], blocks: Sequence[int], num_tokens: int
    ) -> KvTransferParams:
        """Put blocks under a lease, tell the directory, and answer the handle. Cancelled, it gives the blocks back."""
        work = asyncio.ensure_future(asyncio.to_thread(self._keeper.grant, request_id, blocks, num_tokens))
        try:
            lease = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._release_late)
            raise
        settings, shared = self._settings, self._settings.kv_transport == "shm"
        handle = make_handle(
            lease,
            engine_id=self.engine_id,
            model=settings.model_name,
            revision=settings.model_revision,
            layout=self._engine.layout,
            prompt=prompt,
            lease_url=settings.advertise_url,
            host=None if shared else settings.kv_transfer_host,
            port=self._server.tcp_port,
            socket=str(settings.kv_socket) if shared else None,
        )
        self._notify(self._directory.register(request_id, handle))
        return handle

    def renew(self, asked: LeaseRequest) -> float:
        """The Unix time at which the lease ends now; raises KvUnavailable."""
        return self._keeper.renew(asked.request_id, asked.nonce)

    def release(self, asked: LeaseRequest) -> None:
        """End a lease; idempotent."""
        self._keeper.release(asked.request_id, asked.nonce)
        self._notify(self._directory.remove(asked.request_id))

    def sweep(self) -> None:
        """Reclaim what has expired; to be called every second or so."""
        self._keeper.sweep()
        self._puller.sweep()

    def _release_late(self, work: asyncio.Future[Lease]) -> None:
        if not work.cancelled() and work.exception() is None:
            lease = work.result()
            self._keeper.release(lease.request_id, lease.nonce)

    def _notify(self, call: Coroutine[Any, Any, None]) -> None:
        """Tell the kv service in the background: no request waits for it or fails with it."""

        async def run() -> None:
            try:
                await call
            except DiphaseError as error:
                metrics.directory_failures.inc()
                _log.warning("kv_directory_failed", error=error.message)

        if len(self._notices) >= MAX_NOTICES:
            metrics.directory_failures.inc()
            call.close()
            return
        task = asyncio.create_task(run())
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    # -- the decode side

    async def fetch(
        self, request_id: str, prompt: Sequence[int], handle: KvTransferParams
    ) -> tuple[Callable[[list[int]], None], int]:
        """What fills the engine's blocks with the handle's KV, and for how many tokens; raises KvUnavailable.

        A handle that names no more than a request id is looked up in the kv service.
        """
        if handle.nonce is None:
            handle = await self._look_up(handle.remote_request_id or request_id)
        settings = self._settings
        try:
            verify(
                handle,
                model=settings.model_name,
                revision=settings.model_revision,
                layout=self._engine.layout,
                prompt=prompt,
                now=time.time(),
            )
        except DiphaseError:
            metrics.kv_transfers.labels(settings.kv_transport, "refused").inc()
            raise

        def pull(blocks: list[int]) -> None:
            self._pull(handle, blocks)

        return pull, handle.num_tokens

    async def _look_up(self, request_id: str) -> KvTransferParams:
        try:
            found = await self._directory.look_up(request_id)
        except DiphaseError as error:
            raise KvUnavailable(f"the kv service does not tell where the KV of {request_id} is: {error}") from None
        if found is None:
            raise KvUnavailable(f"the kv service knows no KV of {request_id}")
        return found

    def _pull(self, handle: KvTransferParams, blocks: list[int]) -> None:
        """In a thread of the engine. The deadline starts here, when the KV exists and our blocks are reserved."""
        transport = self._settings.kv_transport
        try:
            done = self._puller.pull(
                handle, self._pool.array, blocks, transport, self._settings.kv_transfer_timeout_seconds
            )
        except KvUnavailable as error:
            metrics.kv_transfers.labels(transport, "failed").inc()
            _log.warning("kv_pull_failed", request_id=handle.remote_request_id, reason=error.message)
            raise
        metrics.kv_transfers.labels(transport, "ok").inc()
        metrics.kv_transfer_bytes.labels("pull", transport).inc(done.bytes)
        metrics.kv_transfer_seconds.labels(transport).observe(done.seconds)


def _count_served(served: Served) -> None:
    metrics.kv_transfer_bytes.labels("serve", served.transport).inc(served.bytes)
