"""The one HTTP server: a router as a plain ASGI callable; services.common.role runs it.

A handler takes a Request and returns a Response or a Stream. It raises DiphaseError for what the client should know.
When the client goes away the handler is cancelled, so what it holds is given back in `finally`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from prometheus_client import Counter, Histogram

from services.common import logs, metrics
from services.common.errors import BodyTooLarge, ClientTooSlow, DiphaseError, InvalidRequest, MethodNotAllowed, NotFound
from services.common.http_answers import (
    Headers,
    Outcome,
    Response,
    Send,
    Stream,
    error_response,
    internal_error,
    json_response,
    respond,
    stream_out,
)

__all__ = [
    "App",
    "Handler",
    "Headers",
    "Request",
    "Response",
    "Stream",
    "error_response",
    "json_response",
]

T = TypeVar("T")
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]

_requests = Counter(
    "diphase_http_requests", "Requests answered, by route and status", ["route", "status"], registry=metrics.REGISTRY
)
_seconds = Histogram(
    "diphase_http_request_seconds", "Time until the answer's last byte", ["route"],
    buckets=metrics.SECONDS, registry=metrics.REGISTRY,
)  # fmt: skip
_log = logs.get()


class Request:
    """What a handler sees of a request."""

    def __init__(self, scope: Scope, receive: Receive, params: tuple[str, ...]) -> None:
        self._receive = receive
        self.path: str = scope["path"]
        self.params = params
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.on_body_read: Callable[[], None] = lambda: None

    def header(self, name: str) -> str | None:
        """A header's value, or None; names in lower case."""
        value = self.headers.get(name.encode("latin-1"))
        return None if value is None else value.decode("latin-1")

    async def body(self, limit: int, timeout: float) -> bytes:
        """The whole body; raises BodyTooLarge past `limit` bytes and ClientTooSlow past `timeout` seconds."""
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > limit:
            raise BodyTooLarge(f"the body has {int(announced)} bytes, the limit is {limit}: send less in one request")
        try:
            async with asyncio.timeout(timeout):
                return await self._read(limit)
        except TimeoutError:
            raise ClientTooSlow(f"the body did not arrive within {timeout:.0f} s: send the request again") from None

    async def _read(self, limit: int) -> bytes:
        parts, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise BodyTooLarge(f"the body is over the limit of {limit} bytes: send less in one request")
            parts.append(part)
            more = message.get("more_body", False)
        self.on_body_read()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def json(self, type_: type[T], *, limit: int = 4 * 1024 * 1024, timeout: float = 10.0) -> T:
        """The body decoded as `type_`; raises InvalidRequest naming the field."""
        try:
            return msgspec.json.decode(await self.body(limit, timeout), type=type_)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"the body is not a valid {type_.__name__}: {error}") from None

    async def disconnected(self) -> None:
        """Return when the client has gone; to be awaited once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


Handler = Callable[["Request"], Coroutine[Any, Any, Response | Stream]]
Check = Callable[[], str | None]
_Methods = dict[str, tuple[str, Handler]]  # a method's route and handler


class App:
    """Routes, and the three paths that every role has: /health, /ready, /metrics.

    `health` and `ready` return None, or what is wrong, which is answered with 503. `public` tells that strangers reach
    the app, so that it keeps its metrics to itself once they have another port.
    """

    def __init__(self, *, health: Check = lambda: None, ready: Check = lambda: None, public: bool = False) -> None:
        self._health, self._ready, self._public = health, [ready], public
        self._routes: dict[str, _Methods] = {}
        self._parents: dict[str, _Methods] = {}  # of paths that end in a parameter
        self.draining = False
        self.inflight = 0
        self.route("GET", "/health", self._get_health)
        self.route("GET", "/ready", self._get_ready)
        self.route("GET", "/metrics", self._get_metrics)

    def route(self, method: str, path: str, handler: Handler) -> None:
        """Serve `path`; if it ends in /{…}, the rest of the path is the request's only parameter."""
        routes, key = (self._parents, path.rpartition("/")[0]) if path.endswith("}") else (self._routes, path)
        routes.setdefault(key, {})[method] = (path, handler)

    def require(self, check: Check) -> None:
        """Ready only while `check` finds nothing either."""
        self._ready.append(check)

    def probes(self) -> App:
        """An app with nothing but this one's answers to /health, /ready and /metrics, for a port of its own."""
        app = App()
        app.route("GET", "/health", self._get_health)
        app.route("GET", "/ready", self._get_ready)
        if self._public:
            del self._routes["/metrics"]
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        outcome = Outcome()
        self.inflight += 1
        try:
            await self._serve(scope, receive, send, outcome)
        except asyncio.CancelledError:
            outcome.status = 499  # the client closed the request, as nginx counts it
        finally:
            self.inflight -= 1
            _requests.labels(outcome.route, outcome.status).inc()
            _seconds.labels(outcome.route).observe(time.perf_counter() - started)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, outcome: Outcome) -> None:
        try:
            outcome.route, handler, params = self._find(scope["method"], scope["path"])
            async with _cancelled_with_client(Request(scope, receive, params)) as request:
                result = await handler(request)
                if isinstance(result, Response):
                    outcome.status, outcome.begun = result.status, True
                    await respond(send, result)
                else:
                    outcome.headers = result.headers
                    await stream_out(send, result, outcome)
        except DiphaseError as error:
            outcome.status = error.status
            if not outcome.begun:
                await respond(send, error_response(error, outcome.headers))
        except Exception:  # the last resort: a fault of ours must not become a stack trace at the client
            _log.exception("handler_failed", path=scope["path"])
            outcome.status = 500
            if not outcome.begun:
                await respond(send, error_response(internal_error(), outcome.headers))
        # Where the answer had begun, returning without its end makes uvicorn cut the connection: no silent truncation.

    def _find(self, method: str, path: str) -> tuple[str, Handler, tuple[str, ...]]:
        params: tuple[str, ...] = ()
        methods = self._routes.get(path)
        parent = path
        while methods is None and "/" in parent:  # a parameter may hold slashes, as names of models do
            parent = parent.rpartition("/")[0]
            methods, params = self._parents.get(parent), (path[len(parent) + 1 :],)
        if methods is None:
            raise NotFound(f"there is no {path} here")
        if method not in methods:
            raise MethodNotAllowed(f"{path} takes {' or '.join(methods)}, not {method}")
        return *methods[method], params

    async def _get_health(self, _request: Request) -> Response:
        return _verdict(self._health())

    async def _get_ready(self, _request: Request) -> Response:
        faults = (fault for check in self._ready if (fault := check()) is not None)
        return _verdict("draining" if self.draining else next(faults, None))

    async def _get_metrics(self, _request: Request) -> Response:
        return Response(metrics.exposition(), content_type=metrics.CONTENT_TYPE.encode())


@contextlib.asynccontextmanager
async def _cancelled_with_client(request: Request) -> AsyncIterator[Request]:
    """The `async with` is cancelled when the client goes away, from the moment the request's body is read."""
    task = asyncio.current_task()
    assert task is not None
    watcher: asyncio.Future[None] | None = None

    async def watch() -> None:
        await request.disconnected()
        task.cancel()

    def start_watching() -> None:
        nonlocal watcher
        watcher = asyncio.ensure_future(watch())

    request.on_body_read = start_watching
    try:
        yield request
    finally:
        if watcher is not None:
            watcher.cancel()
        if task.cancelling():
            task.uncancel()  # it was the watcher's cancel, and it ends here


def _verdict(fault: str | None) -> Response:
    return json_response(
        {"status": "ok"} if fault is None else {"status": "fail", "reason": fault}, 503 if fault else 200
    )
