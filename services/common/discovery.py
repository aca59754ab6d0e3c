"""Base URLs of replicas that come and go: `dns+https://NAME:PORT` is every address of the name, asked again and again.

A headless Service of Kubernetes answers with the addresses of its pods. An address that vanishes from the answer is
dropped; when DNS itself fails, the last good answer stays. Other URLs stay as they are, and cost nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from prometheus_client import Counter, Gauge

from services.common import logs, metrics
from services.common.settings import DISCOVERED

REFRESH_SECONDS = 2.0  # between two questions
LOOKUP_SECONDS = 2.0  # after which a question counts as failed; its answer is still taken when it comes
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
_addresses = Gauge("diphase_discovery_addresses", "Addresses of a name", ["name"], registry=metrics.REGISTRY)
_failures = Counter(
    "diphase_discovery_failures", "Questions for a name's addresses in vain", ["name"], registry=metrics.REGISTRY
)
_log = logs.get()


async def resolve(name: str, port: int) -> Sequence[str]:
    """The addresses of a name, by the system's resolver; of one family, since a pod of two has an address of each.

    Raises OSError or UnicodeError.
    """
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    preferred = found[0][0]
    return [str(address[0]) for family, _, _, _, address in found if family == preferred]


class Discovery:
    """The URLs in `urls`, those of names resolved. Lives on one event loop, from `start` to `stop`.

    `on_change` is called whenever `urls` has become another tuple.
    """

    def __init__(self, urls: Sequence[str], *, resolve: Resolve = resolve, interval: float = REFRESH_SECONDS) -> None:
        self._resolve, self._interval = resolve, interval
        self._names = [_Name(url.rstrip("/")) for url in urls]
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._on_change: Callable[[], None] = lambda: None
        self.urls: tuple[str, ...] = ()
        self._gather()

    def start(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Begin to ask; URLs that are not names are known already."""
        self._on_change = on_change
        self._tasks = [asyncio.create_task(self._follow(name)) for name in self._names if name.asked]

    async def stop(self) -> None:
        """End. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def changes(self) -> bool:
        """Whether any of the URLs is a name."""
        return any(name.asked for name in self._names)

    async def change(self, known: tuple[str, ...], timeout: float) -> None:
        """Ask at once, and wait until `urls` is not `known`, or for `timeout` seconds."""
        for name in self._names:
            name.now.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.urls == known:
                    await self._news.wait()

    @property
    def fault(self) -> str:
        """Which names have no address, and why; empty where all have."""
        lost = (name for name in self._names if not name.urls)
        return "; ".join(f"{name.url} has no address: {name.fault or 'not asked yet'}" for name in lost)

    def _gather(self) -> None:
        urls = tuple(dict.fromkeys(url for name in self._names for url in name.urls))
        if urls == self.urls:
            return
        self.urls = urls
        self._news.set()
        self._news = asyncio.Event()
        self._on_change()

    async def _follow(self, name: _Name) -> None:
        """Ask for ever. A question that hangs is waited for, beyond its time, instead of asking another beside it."""
        asking: asyncio.Future[Sequence[str]] | None = None
        try:
            while True:
                name.now.clear()
                asking = asking or asyncio.ensure_future(self._resolve(name.host, name.port))
                await asyncio.wait((asking,), timeout=LOOKUP_SECONDS)
                if not asking.done():
                    name.failed(f"no answer within {LOOKUP_SECONDS:.0f} s")
                    continue
                try:
                    name.answered(asking.result())
                except Exception as error:  # OSError or UnicodeError; whatever it is, the next one may go well
                    name.failed(str(error))
                asking = None
                self._gather()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval):
                        await name.now.wait()
        finally:
            if asking is not None:
                asking.cancel()


class _Name:
    """One of the URLs given: itself, or what its name stands for now."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked = url.startswith(DISCOVERED)
        parts = urlsplit(url.removeprefix(DISCOVERED))
        self.scheme, self.host, self.port = parts.scheme, parts.hostname or "", parts.port or 0
        self.now = asyncio.Event()
        self.urls: tuple[str, ...] = () if self.asked else (url,)
        self.fault: str | None = None

    def answered(self, addresses: Sequence[str]) -> None:
        if not addresses:
            self.failed("an empty answer")
            return
        hosts = sorted({f"[{address}]" if ":" in address else address for address in addresses})
        urls = tuple(f"{self.scheme}://{host}:{self.port}" for host in hosts)
        if urls != self.urls:
            _log.info("addresses_changed", name=self.url, now=hosts)
        elif self.fault is not None:
            _log.info("addresses_answered_again", name=self.url)
        self.urls, self.fault = urls, None
        _addresses.labels(self.url).set(len(urls))

    def failed(self, reason: str) -> None:
        _failures.labels(self.url).inc()
        if self.fault is None:
            _log.warning("addresses_unknown", name=self.url, reason=reason, kept=len(self.urls))
        self.fault = reason
