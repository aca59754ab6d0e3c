"""Scheduler replicas as real processes, and workers that are nothing but their heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from services.common.discovery import Discovery
from services.common.errors import UpstreamFailed
from services.common.http_client import HttpClient, Reply
from services.common.settings import SchedulerSettings
from services.common.wire import PlaceRequest, ReleaseRequest
from services.worker.registration import Registration
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
SILENCE, GRACE = 1.5, 4.0


class Replica:
    """One process."""

    def __init__(self, name: str, queue: int = 4) -> None:
        self.settings = SchedulerSettings(
            instance=name,
            port=free_port(),
            scheduler_max_queue=queue,
            scheduler_heartbeat_timeout_seconds=SILENCE,
            scheduler_absent_grace_seconds=GRACE,
            drain_seconds=5.0,
            exit_with_parent=True,
        )
        self.url = f"http://127.0.0.1:{self.settings.port}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.scheduler"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **self.settings.to_environ()},
        )

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """As a supervisor does; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


@dataclass
class Cluster:
    """Replicas, and how a gateway talks to them."""

    replicas: list[Replica]
    client: HttpClient = field(default_factory=HttpClient)

    async def place(self, request: PlaceRequest, replica: int = 0) -> Reply:
        """One call, as it is answered."""
        url = self.replicas[replica].url
        timeout = request.timeout + 5
        return await self.client.request("POST", f"{url}/v1/place", msgspec.json.encode(request), timeout=timeout)

    async def release(self, request_id: str, phase: str = "decode", replica: int = 0) -> bool:
        """Whether it counted."""
        body = msgspec.json.encode(ReleaseRequest(request_id, phase))
        reply = await self.client.request("POST", f"{self.replicas[replica].url}/v1/release", body, timeout=5)
        return bool(json.loads(reply.raise_for_status("scheduler").body)["released"])

    async def report(self, replica: int = 0) -> dict[str, Any]:
        """GET /v1/workers."""
        reply = await self.client.request("GET", f"{self.replicas[replica].url}/v1/workers", timeout=5)
        return json.loads(reply.raise_for_status("scheduler").body)

    async def metric(self, line: str, replica: int = 0) -> float:
        """The value of one line of /metrics; 0 where it is not there."""
        reply = await self.client.request("GET", f"{self.replicas[replica].url}/metrics", timeout=5)
        found = [rest for rest in reply.body.decode().splitlines() if rest.startswith(line + " ")]
        return float(found[0].rsplit(" ", 1)[1]) if found else 0.0

    async def ready(self) -> None:
        for replica in self.replicas:
            await eventually(lambda url=replica.url: self._answers(url))

    async def _answers(self, url: str) -> bool:
        with contextlib.suppress(UpstreamFailed):
            return (await self.client.request("GET", f"{url}/ready", timeout=5)).status == 200
        return False

    async def waiting(self, number: int, replica: int = 0) -> None:
        """Until so many wait for decode."""

        async def as_many() -> bool:
            return (await self.report(replica))["waiting"]["decode"] == number

        await eventually(as_many)

    async def knows(self, number: int, replica: int = 0) -> None:
        """Until so many workers are known and live."""

        async def as_many() -> bool:
            return sum(worker["state"] == "live" for worker in (await self.report(replica))["workers"]) == number

        await eventually(as_many)


async def eventually(condition: Any, seconds: float = 20.0) -> None:
    """Poll an async condition; fails if it does not come about."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, "did not come about in time"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def cluster(replicas: int = 1, queue: int = 4) -> AsyncIterator[Cluster]:
    """Ready replicas; ended on every path."""
    made = Cluster([Replica(f"scheduler-{number}", queue) for number in range(replicas)])
    try:
        await made.ready()
        yield made
    finally:
        await made.client.close()
        for replica in made.replicas:
            if replica.process.poll() is None:
                replica.kill()


@contextlib.asynccontextmanager
async def beating(made: Cluster, beat: Any, worker_id: str, **fields: Any) -> AsyncIterator[Registration]:
    """A worker that lives while the context is open; a list given as `active` may be changed meanwhile."""
    sequence = 0

    def make() -> Any:
        nonlocal sequence
        sequence += 1
        return beat(worker_id, worker_id.split("-")[0], sequence, **fields)

    registration = Registration(Discovery([replica.url for replica in made.replicas]), 0.1, made.client, make)
    await registration.start()
    try:
        yield registration
    finally:
        await registration.stop()
