"""The kv service over HTTP: PUT, GET and DELETE /v1/handles/{request_id}."""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic

from prometheus_client import Counter, Gauge

from services.common.errors import InvalidRequest, NotFound
from services.common.http_server import App, Request, Response, json_response
from services.common.metrics import REGISTRY
from services.common.settings import KvSettings
from services.common.wire import KvTransferParams
from services.kv.directory import HandleDirectory

BODY_LIMIT = 1024 * 1024  # bytes; a handle lists the blocks of one request
_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_HANDLES = Gauge("diphase_kv_handles", "Handles registered", registry=REGISTRY)
_CALLS = Counter(
    "diphase_kv_directory_calls", "Calls to the directory, by outcome", ["call", "outcome"], registry=REGISTRY
)
_EVICTED = Counter("diphase_kv_handles_evicted", "Handles dropped because the directory was full", registry=REGISTRY)


class KvApp:
    """One directory behind its routes."""

    def __init__(self, settings: KvSettings, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.directory = HandleDirectory(max_handles=settings.kv_max_handles, ttl_seconds=settings.kv_ttl_seconds)
        _HANDLES.set_function(lambda: self.directory.count(self._clock()))
        self.app = App()
        self.app.route("PUT", "/v1/handles/{request_id}", self._put)
        self.app.route("GET", "/v1/handles/{request_id}", self._get)
        self.app.route("DELETE", "/v1/handles/{request_id}", self._delete)

    async def _put(self, request: Request) -> Response:
        request_id = _request_id(request)
        handle = await request.json(KvTransferParams, limit=BODY_LIMIT)
        evicted = self.directory.put(request_id, handle, self._clock())
        _EVICTED.inc(evicted)
        _CALLS.labels("put", "ok").inc()
        return json_response({})

    async def _get(self, request: Request) -> Response:
        request_id = _request_id(request)
        handle = self.directory.get(request_id, self._clock())
        _CALLS.labels("get", "ok" if handle else "absent").inc()
        if handle is None:
            raise NotFound(f"no KV handle of {request_id} is registered", param="request_id")
        return json_response(handle)

    async def _delete(self, request: Request) -> Response:
        """Idempotent: tells whether there was a handle."""
        removed = self.directory.remove(_request_id(request), self._clock())
        _CALLS.labels("delete", "ok" if removed else "absent").inc()
        return json_response({"removed": removed})


def _request_id(request: Request) -> str:
    (request_id,) = request.params
    if not _ID.fullmatch(request_id):
        raise InvalidRequest("a request id has 1 to 128 letters, digits and .:_-", param="request_id")
    return request_id
