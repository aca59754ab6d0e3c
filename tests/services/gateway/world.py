"""A gateway among doubles of workers and real schedulers, all over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from services.common.http_client import HttpClient, Reply
from services.common.settings import GatewaySettings
from services.gateway.app import Gateway
from services.gateway.tokenization import Tokenization
from tests.services.common.serving import Served, serving, until
from tests.services.gateway.double import Double

KEY = "sk-test-0123456789"
TEXT = "Grüße 😀 aus 東京: the answer, token by token, is the same wherever it is written. 👩‍🚀!"


@dataclass
class World:
    """What a test sees."""

    gateway: Gateway
    served: Served
    model: str
    prefill: list[Double]
    decode: list[Double]
    http: HttpClient
    answer: list[int]
    client: openai.AsyncOpenAI  # without retries of its own

    @property
    def workers(self) -> list[Double]:
        return self.prefill + self.decode

    async def post(self, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str) -> Reply:
        """One request by hand; `model` and the key are filled in."""
        data = json.dumps({"model": self.model, **body}).encode()
        named = [
            (name.replace("_", "-"), value) for name, value in {"Authorization": f"Bearer {KEY}", **headers}.items()
        ]
        return await self.http.request("POST", self.served.url + path, data, headers=named, timeout=30)

    async def at_rest(self) -> None:
        """Until nothing is held anywhere."""
        await until(lambda: not len(self.gateway.background))
        await until(lambda: not any(worker.leases for worker in self.workers))
        await until(lambda: not any(worker.running for worker in self.workers))
        await until(lambda: self.gateway.app.inflight == 0)
        assert self.gateway._inflight == 0
        for url in self.gateway.settings.scheduler_urls:
            async with asyncio.timeout(10):
                while any(worker["requests"] for worker in await self.seen(url)):
                    pass  # a replica that did not place a request knows of it, and of its end, from heartbeats

    async def seen(self, scheduler: str) -> list[dict[str, Any]]:
        """This world's workers as a scheduler sees them."""
        reply = await self.http.request("GET", f"{scheduler}/v1/workers", timeout=5)
        report = json.loads(reply.body)
        return [worker for worker in report["workers"] if worker["model"] == self.model]


@contextlib.asynccontextmanager
async def world(
    tmp_path: Path,
    model_path: Path,
    schedulers: list[str],
    *,
    prefill: int = 1,
    decode: int = 1,
    text: str = TEXT,
    worker: dict[str, Any] | None = None,
    revisions: Sequence[str] = ("r1",),
    **settings: Any,
) -> AsyncIterator[World]:
    """A world of its own: its model's name is used once, so that worlds can share schedulers.

    Workers of a phase have the revisions in turn.
    """
    model = f"model-{uuid.uuid4().hex[:8]}"
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps([{"name": "test", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]))
    answer = _ids(model_path, text)
    doubles = {
        phase: [
            Double(
                phase,
                answer,
                schedulers,
                model,
                f"{model}-{phase}-{i}",
                revision=revisions[i % len(revisions)],
                **(worker or {}),
            )
            for i in range(count)
        ]
        for phase, count in (("prefill", prefill), ("decode", decode))
    }
    async with contextlib.AsyncExitStack() as held:
        everyone = doubles["prefill"] + doubles["decode"]
        for double in everyone:
            await held.enter_async_context(double.serve())
        values: dict[str, Any] = {
            "instance": "gateway-0",
            "port": 1,
            "model_path": model_path,
            "model_name": model,
            "model_revision": "r1",
            "scheduler_urls": tuple(schedulers),
            "gateway_api_keys_file": keys,
            **settings,
        }
        gateway = Gateway(GatewaySettings(**values))
        held.push_async_callback(gateway.close)
        served = await held.enter_async_context(serving(gateway.app))
        http = HttpClient()
        held.push_async_callback(http.close)
        client = openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=0, timeout=30)
        held.push_async_callback(client.close)
        here = World(gateway, served, model, doubles["prefill"], doubles["decode"], http, answer, client)
        for url in schedulers:
            await _registered(here, url, len(everyone))
        try:
            yield here
        finally:
            for server in (served, *(double.server for double in everyone)):
                assert server is not None
                server.should_exit = True  # all at once: each takes a few tenths of a second to see it


@functools.cache
def _ids(model_path: Path, text: str) -> list[int]:
    ids: list[int] = Tokenization(model_path, 8192).tokenizer.encode(text, add_special_tokens=False).ids
    return ids


async def _registered(here: World, scheduler: str, count: int) -> None:
    while len(await here.seen(scheduler)) < count:
        pass
