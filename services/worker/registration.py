"""Tells every scheduler replica that this worker lives and what it holds; one loop for each, so none delays another.

Where the replicas are found by DNS, loops begin and end as they come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from services.common import logs
from services.common.discovery import Discovery
from services.common.errors import DiphaseError, UpstreamFailed
from services.common.http_client import HttpClient
from services.common.wire import Heartbeat, HeartbeatAnswer

LEAST_TIMEOUT = 0.5  # seconds: a scheduler that is slower than a short interval is not dead yet
_answer = msgspec.json.Decoder(HeartbeatAnswer).decode
_log = logs.get()


class Registration:
    """Heartbeats to `schedulers` every `interval` seconds, from `start` to `stop`, which are the discovery's too.

    `make_heartbeat` is called for each one; its sequence must grow from call to call.
    """

    def __init__(
        self, schedulers: Discovery, interval: float, client: HttpClient, make_heartbeat: Callable[[], Heartbeat]
    ) -> None:
        self._schedulers = schedulers
        self._interval = interval
        self._client = client
        self._make = make_heartbeat
        self._loops: dict[str, tuple[_Replica, asyncio.Task[None]]] = {}  # by URL
        self._ended: set[asyncio.Task[None]] = set()  # cancelled, and perhaps not over
        self._paired = False  # once and for all: who loses its partners later is as ready as it was

    async def start(self) -> None:
        """Begin; the first heartbeats go out at once."""
        self._schedulers.start(self._follow)
        self._follow()

    async def stop(self) -> None:
        """End, and wait until nothing is under way. Idempotent."""
        await self._schedulers.stop()
        for url in list(self._loops):
            self._end(url)
        await asyncio.gather(*self._ended, return_exceptions=True)

    def _follow(self) -> None:
        """A loop for each replica that there is, and none for others."""
        urls = self._schedulers.urls
        for url in self._loops.keys() - set(urls):
            self._end(url)
        for url in urls:
            if url not in self._loops:
                replica = _Replica(url)
                self._loops[url] = replica, asyncio.create_task(self._run(replica))

    def _end(self, url: str) -> None:
        _, task = self._loops.pop(url)
        task.cancel()
        self._ended.add(task)
        task.add_done_callback(self._ended.discard)

    def notify(self) -> None:
        """Send a heartbeat now: something has changed that schedulers should know, such as that a drain began."""
        for replica, _ in self._loops.values():
            replica.now.set()

    @property
    def fault(self) -> str | None:
        """Why no request can be expected here, for /ready: refused by a replica, heard by none, or never yet with
        anybody to exchange KV with. Else None.

        So in a rollout the workers of a new revision get ready together, and the old ones go together: were one phase
        ahead of the other, no pair would be left between them.
        """
        replicas = [replica for replica, _ in self._loops.values()]
        for _, task in self._loops.values():
            if task.done() and not task.cancelled():
                return f"heartbeats have ended: {task.exception()!r}"
        refusals = [replica.refusal for replica in replicas if replica.refusal]
        if refusals:
            return refusals[0]
        if any(replica.registered for replica in replicas):
            self._paired = self._paired or any(replica.paired for replica in replicas)
            return (
                None if self._paired else "no worker of the other phase is of the same revision and KV layout, so far"
            )
        silences = [replica.silence or replica.url for replica in replicas]
        return "no scheduler answers: " + "; ".join(filter(None, (*silences, self._schedulers.fault)))

    async def _run(self, replica: _Replica) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._interval
            replica.now.clear()  # before the heartbeat is made: what changes from here on is told by another one
            await self._beat(replica)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await replica.now.wait()

    async def _beat(self, replica: _Replica) -> None:
        body = msgspec.json.encode(self._make())
        timeout = max(self._interval, LEAST_TIMEOUT)
        try:
            reply = await self._client.request("POST", f"{replica.url}/v1/heartbeat", body, timeout=timeout)
            answer = _decode(reply.raise_for_status(replica.url).body, replica.url)
        except DiphaseError as error:
            if error.status < 500:
                replica.heard_refusal(error.message)
            else:
                replica.heard_nothing(error.message)
        else:
            replica.heard_yes(answer.paired)


def _decode(body: bytes, url: str) -> HeartbeatAnswer:
    try:
        return _answer(body)
    except msgspec.DecodeError as error:
        raise UpstreamFailed(f"{url} does not answer as a scheduler does: {error}") from None


class _Replica:
    """One scheduler, and what it answered last; a change is logged once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.now = asyncio.Event()
        self.registered = self.paired = False
        self.refusal: str | None = None
        self.silence: str | None = None

    def heard_yes(self, paired: bool) -> None:
        if not self.registered:
            _log.info("registered", scheduler=self.url)
        self.registered, self.refusal, self.silence = True, None, None
        self.paired = paired

    def heard_refusal(self, reason: str) -> None:
        if self.refusal != reason:
            _log.error("registration_refused", scheduler=self.url, reason=reason)
        self.registered, self.refusal, self.silence = False, reason, None

    def heard_nothing(self, reason: str) -> None:
        if self.silence is None:
            _log.warning("scheduler_silent", scheduler=self.url, reason=reason)
        # It refused because it knew something; a replica that has died knows nothing any more.
        self.registered, self.refusal, self.silence = False, None, reason
