"""The gateway's hold on KV that a prefill worker keeps: renewed while it is needed, released once."""

from __future__ import annotations

import asyncio
import time

from services.common.errors import DiphaseError
from services.common.wire import KvTransferParams
from services.gateway.background import Background
from services.gateway.upstream import Workers

SHORTEST_RENEWAL = 0.5  # seconds between renewals, whatever the worker says


class Lease:
    """Ours from the moment it is made until `release`, which every path calls; later calls do nothing.

    A handle without lease_url (of vLLM) has its engine's own time limit and needs neither.
    """

    def __init__(self, handle: KvTransferParams, workers: Workers, background: Background) -> None:
        self.handle = handle
        self.held = True
        self._workers, self._background = workers, background
        self._timer: asyncio.TimerHandle | None = None
        if handle.lease_url is not None and handle.remote_request_id is not None:
            self._arm(handle.expires_at)

    def release(self) -> None:
        """Give the KV back."""
        if not self.held:
            return
        self.held = False
        if self._timer is not None:
            self._timer.cancel()
        url, request_id = self.handle.lease_url, self.handle.remote_request_id
        if url is not None and request_id is not None:
            self._background.spawn(self._workers.release(url, request_id, self.handle.nonce), "release of KV")

    def _arm(self, expires_at: float) -> None:
        wait = max(SHORTEST_RENEWAL, (expires_at - time.time()) / 3)
        self._timer = asyncio.get_running_loop().call_later(wait, self._renew_soon, expires_at)

    def _renew_soon(self, expires_at: float) -> None:
        self._background.spawn(self._renew(expires_at), "renewal of KV")

    async def _renew(self, expires_at: float) -> None:
        handle = self.handle
        assert handle.lease_url is not None
        assert handle.remote_request_id is not None
        try:
            expires_at = await self._workers.renew(handle.lease_url, handle.remote_request_id, handle.nonce)
        except DiphaseError:
            if not self.held or time.time() > expires_at:
                return  # lost: decode will be told so, and prefill runs again
        if self.held:
            self._arm(expires_at)
