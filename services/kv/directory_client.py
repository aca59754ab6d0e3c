"""The directory of handles as a worker sees it; each call has a deadline and raises DiphaseError.

The directory is soft state. Whoever calls counts and logs what is raised, and goes on: no request depends on it.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from services.common.errors import NotFound, UpstreamFailed
from services.common.http_client import HttpClient
from services.common.wire import KvTransferParams

TIMEOUT_SECONDS = 1.0


class DirectoryClient:
    """Talks to the kv service at `url` over a client of the caller's."""

    def __init__(self, client: HttpClient, url: str, timeout: float = TIMEOUT_SECONDS) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._timeout = timeout

    async def register(self, request_id: str, handle: KvTransferParams) -> None:
        """Tell where the KV of a request lies."""
        await self._call("PUT", request_id, msgspec.json.encode(handle))

    async def look_up(self, request_id: str) -> KvTransferParams | None:
        """The handle, or None where none is registered."""
        try:
            body = await self._call("GET", request_id)
        except NotFound:
            return None
        try:
            return msgspec.json.decode(body, type=KvTransferParams)
        except msgspec.MsgspecError as error:
            raise UpstreamFailed(f"{self._url} answered no KV handle: {error}") from None

    async def remove(self, request_id: str) -> None:
        """Forget a handle; one that is not there is none to forget."""
        await self._call("DELETE", request_id)

    async def _call(self, method: str, request_id: str, body: bytes = b"") -> bytes:
        url = f"{self._url}/v1/handles/{quote(request_id, safe='')}"
        reply = await self._client.request(method, url, body, timeout=self._timeout)
        return reply.raise_for_status(self._url).body
