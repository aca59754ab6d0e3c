"""Tells every scheduler replica that this worker lives and what it holds; one loop for each, so none delays another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec

from services.common import logs
from services.common.errors import DiphaseError
from services.common.http_client import HttpClient
from services.common.wire import Heartbeat

LEAST_TIMEOUT = 0.5  # seconds: a scheduler that is slower than a short interval is not dead yet
_log = logs.get()


class Registration:
    """Heartbeats to `urls` every `interval` seconds, from `start` to `stop`.

    `make_heartbeat` is called for each one; its sequence must grow from call to call.
    """

    def __init__(
        self, urls: Sequence[str], interval: float, client: HttpClient, make_heartbeat: Callable[[], Heartbeat]
    ) -> None:
        self._interval = interval
        self._client = client
        self._make = make_heartbeat
        self._replicas = [_Replica(url.rstrip("/")) for url in urls]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin; the first heartbeats go out at once."""
        self._tasks = [asyncio.create_task(self._run(replica)) for replica in self._replicas]

    async def stop(self) -> None:
        """End, and wait until nothing is under way. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def notify(self) -> None:
        """Send a heartbeat now: something has changed that schedulers should know, such as that a drain began."""
        for replica in self._replicas:
            replica.now.set()

    @property
    def fault(self) -> str | None:
        """Why no request can be expected here, for /ready: refused by a replica, or heard by none. Else None."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                return f"heartbeats have ended: {task.exception()!r}"
        refusals = [replica.refusal for replica in self._replicas if replica.refusal]
        if refusals:
            return refusals[0]
        if any(replica.registered for replica in self._replicas):
            return None
        return "no scheduler answers: " + "; ".join(replica.silence or replica.url for replica in self._replicas)

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
            reply.raise_for_status(replica.url)
        except DiphaseError as error:
            if error.status < 500:
                replica.heard_refusal(error.message)
            else:
                replica.heard_nothing(error.message)
        else:
            replica.heard_yes()


class _Replica:
    """One scheduler, and what it answered last; a change is logged once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.now = asyncio.Event()
        self.registered = False
        self.refusal: str | None = None
        self.silence: str | None = None

    def heard_yes(self) -> None:
        if not self.registered:
            _log.info("registered", scheduler=self.url)
        self.registered, self.refusal, self.silence = True, None, None

    def heard_refusal(self, reason: str) -> None:
        if self.refusal != reason:
            _log.error("registration_refused", scheduler=self.url, reason=reason)
        self.registered, self.refusal, self.silence = False, reason, None

    def heard_nothing(self, reason: str) -> None:
        if self.silence is None:
            _log.warning("scheduler_silent", scheduler=self.url, reason=reason)
        # It refused because it knew something; a replica that has died knows nothing any more.
        self.registered, self.refusal, self.silence = False, None, reason
