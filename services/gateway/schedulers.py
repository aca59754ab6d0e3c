"""The gateway's way to the schedulers: any of them will do, and one that has gone is not missed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

import msgspec

from services.common import errors
from services.common.discovery import Discovery
from services.common.errors import Absent, DeadlineExceeded, DiphaseError, UpstreamFailed
from services.common.http_client import HttpClient, Reply
from services.common.wire import Phase, Placement, PlaceRequest, ReleaseRequest
from services.gateway import metrics
from services.gateway.upstream import CALL_SECONDS

PROBE_SECONDS = 2.0  # a scheduler whose placement takes longer is asked, as often, whether it lives
SUCCESSOR_SECONDS = 10.0  # where replicas are found by DNS: how long those that are gone may have no successor
RETRY_SECONDS = 0.5  # how long, at most, until the replicas known then are asked once more
_encode = msgspec.json.Encoder().encode
_placement = msgspec.json.Decoder(Placement).decode


class Schedulers:
    """Replicas that know the same; each gateway prefers one, and goes to the next when it fails.

    Starts with an event loop running where the replicas are found by DNS.
    """

    def __init__(self, client: HttpClient, replicas: Discovery, instance: str) -> None:
        self._client = client
        self._replicas = replicas
        self._lot = zlib.crc32(instance.encode())
        self._preferred: str | None = None
        replicas.start(self._choose)
        self._choose()

    async def close(self) -> None:
        """Look for no more replicas."""
        await self._replicas.stop()

    @property
    def preferred(self) -> str | None:
        """URL of the replica that is asked first; None where none is known."""
        return self._preferred

    def _choose(self) -> None:
        """Keep the preferred one as long as it is there."""
        urls = self._replicas.urls
        if self._preferred not in urls:
            self._preferred = urls[self._lot % len(urls)] if urls else None

    async def place(self, request: PlaceRequest) -> tuple[Placement, str]:
        """A worker, and the URL of the replica that chose it. Raises what the scheduler answers, or Absent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout
        patience = loop.time() + min(request.timeout, SUCCESSOR_SECONDS)
        while True:
            known = self._replicas.urls
            refusal: Absent | None = None
            body = _encode(request)
            for url in self._in_order():
                try:
                    return await self._ask(url, body, request.timeout), url
                except (UpstreamFailed, errors.Draining):
                    self._fail_over(url)
                except Absent as error:  # perhaps it has just begun, and the workers don't know of it yet
                    refusal = error
                except errors.ModelNotFound as error:  # it is our own model, so no worker has registered yet
                    refusal = Absent(error.message)
            if refusal is not None:
                raise refusal
            if not self._replicas.changes or loop.time() >= patience:
                raise Absent("no scheduler answers: try again in a few seconds")
            await self._replicas.change(known, RETRY_SECONDS)
            request = msgspec.structs.replace(request, timeout=max(0.0, deadline - loop.time()))

    def _in_order(self) -> Sequence[str]:
        urls = self._replicas.urls
        first = urls.index(self._preferred) if self._preferred in urls else 0
        return urls[first:] + urls[:first]

    async def _ask(self, url: str, body: bytes, timeout: float) -> Placement:
        """One replica's placement, which may take until the deadline; UpstreamFailed where it hangs meanwhile."""
        loop = asyncio.get_running_loop()
        probes: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(None) as hung:
                timer = loop.call_later(PROBE_SECONDS, lambda: probes.append(loop.create_task(self._probe(url, hung))))
                try:
                    # The scheduler keeps the deadline; the margin lets its answer arrive.
                    reply = await self._client.request("POST", f"{url}/v1/place", body, timeout=timeout + 1.0)
                finally:
                    timer.cancel()
                    for probe in probes:
                        probe.cancel()
        except TimeoutError:
            raise UpstreamFailed(f"{url} hangs") from None
        except DeadlineExceeded:
            raise DeadlineExceeded("no worker was found before the request's deadline: try again later") from None
        if reply.status >= 400:
            raise _refusal(reply, url)
        try:
            return _placement(reply.body)
        except msgspec.DecodeError as error:
            raise UpstreamFailed(f"{url} answered no placement: {error}") from None

    async def _probe(self, url: str, hung: asyncio.Timeout) -> None:
        """End a wait whose replica does not answer even this."""
        while True:
            try:
                await self._client.request("GET", f"{url}/health", timeout=PROBE_SECONDS)
            except DiphaseError:
                hung.reschedule(asyncio.get_running_loop().time())
                return
            await asyncio.sleep(PROBE_SECONDS)

    async def release(self, url: str, request_id: str, phase: Phase) -> None:
        """Tell the replica that chose the worker that its slot is free."""
        body = _encode(ReleaseRequest(request_id, phase))
        (await self._client.request("POST", f"{url}/v1/release", body, timeout=CALL_SECONDS)).raise_for_status(url)

    def _fail_over(self, url: str) -> None:
        metrics.scheduler_failovers.inc()
        urls = self._replicas.urls
        if self._preferred == url and url in urls:
            self._preferred = urls[(urls.index(url) + 1) % len(urls)]


def _refusal(reply: Reply, url: str) -> DiphaseError:
    error = errors.from_response(reply.status, reply.body, url)
    after = reply.headers.get("retry-after", "")
    if after.isdigit():
        error.retry_after = float(after)
    return error
