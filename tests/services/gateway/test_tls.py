"""A gateway as it runs in a pod: TLS for anybody in front, certificates of the stack's CA behind, probes apart."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from services.common.settings import GatewaySettings
from services.common.tls import CHECK_SECONDS, Certificates
from services.gateway.tokenization import Tokenization
from tests.ports import free_port
from tests.services.common.certificates import Authority, mount
from tests.services.common.serving import until
from tests.services.gateway.conftest import start_role, start_scheduler, wait_ready
from tests.services.gateway.double import Double
from tests.services.gateway.world import KEY, TEXT

NAME = "localhost"
MESSAGES: list[Any] = [{"role": "user", "content": "Hello"}]


@dataclass
class Stack:
    """What the tests need of it."""

    url: str
    probes: str
    edge: Path
    outside: Authority  # signs the certificate at the edge
    decode: Double
    process: Any

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.outside.pem.decode())


@contextlib.asynccontextmanager
async def stack(tmp_path: Path, model_path: Path) -> AsyncIterator[Stack]:
    inside, outside = Authority("inside"), Authority("outside")
    internal = mount(tmp_path / "tls", inside.internal())
    edge = mount(tmp_path / "edge", outside.issue(NAME))
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps([{"name": "test", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]))
    answer = Tokenization(model_path, 8192).tokenizer.encode(TEXT, add_special_tokens=False).ids
    async with contextlib.AsyncExitStack() as held:
        scheduler_probes = free_port()
        scheduler, scheduler_url = start_scheduler(
            "scheduler-0", tls_folder=internal, probe_port=scheduler_probes, host="localhost"
        )
        held.callback(scheduler.wait, 20)
        held.callback(scheduler.kill)
        await asyncio.to_thread(wait_ready, f"http://localhost:{scheduler_probes}")
        settings = GatewaySettings(
            instance="gateway-0",
            host="localhost",
            port=free_port(),
            probe_port=free_port(),
            tls_folder=internal,
            gateway_tls_folder=edge,
            model_path=model_path,
            model_name="m",
            model_revision="r1",
            scheduler_urls=(scheduler_url.replace("https://127.0.0.1", "dns+https://localhost"),),
            gateway_api_keys_file=keys,
            drain_seconds=20.0,
            exit_with_parent=True,
        )
        process = start_role("gateway", settings)
        held.callback(process.wait, 20)
        held.callback(process.kill)
        doubles = [
            Double(phase, answer, [scheduler_url], "m", f"{phase}-0", tls=Certificates("internal", internal))
            for phase in ("prefill", "decode")
        ]
        for double in doubles:
            await held.enter_async_context(double.serve())
        probes = f"http://{NAME}:{settings.probe_port}"
        await asyncio.to_thread(wait_ready, probes)
        yield Stack(f"https://{NAME}:{settings.port}", probes, edge, outside, doubles[1], process)


def shown(here: Stack) -> str:
    """The serial number of the certificate that a new client sees."""
    host, port = here.url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=20) as raw,
        here.context().wrap_socket(raw, server_hostname=NAME) as secure,
    ):
        peer = secure.getpeercert()
        assert peer is not None
        return str(peer["serialNumber"])


def test_the_official_client_through_tls(tmp_path: Path, model_path: Path) -> None:
    async def main() -> None:
        async with stack(tmp_path, model_path) as here, httpx.AsyncClient(verify=here.context(), timeout=30) as http:
            client = openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key=KEY, max_retries=0, http_client=http)
            whole = await client.chat.completions.create(model="m", messages=MESSAGES)
            assert whole.choices[0].message.content == TEXT
            statuses = [(await http.get(here.url + path)).status_code for path in ("/health", "/ready", "/metrics")]
            assert statuses == [200, 200, 404], "strangers see no metrics"
            metrics = (await http.get(here.probes + "/metrics")).text
            assert 'diphase_certificate_expiry_timestamp_seconds{certificate="edge"}' in metrics
            assert 'diphase_certificate_expiry_timestamp_seconds{certificate="internal"}' in metrics
            assert (
                await http.get(here.probes + "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
            ).status_code == 404
            for method in ("GET", "POST"):
                with pytest.raises(httpx.TransportError):
                    await http.request(method, here.url.replace("https", "http") + "/v1/models")

            before = await asyncio.to_thread(shown, here)
            mount(here.edge, here.outside.issue(NAME))
            deadline = time.monotonic() + 20 * CHECK_SECONDS
            while await asyncio.to_thread(shown, here) == before:
                assert time.monotonic() < deadline, "the new certificate is not shown"
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            here.decode.pause = 0.05
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            assert "".join(pieces) == TEXT

            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            await until(lambda: len(here.decode.running) == 1)
            here.process.terminate()
            await _until_not_ready(http, here.probes)
            pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
            assert "".join(pieces) == TEXT, "the answer that was under way is whole"
            assert await asyncio.to_thread(here.process.wait, 30) == 0

    asyncio.run(asyncio.wait_for(main(), 120))


async def _until_not_ready(http: httpx.AsyncClient, probes: str) -> None:
    async with asyncio.timeout(20):
        while (await http.get(probes + "/ready")).status_code != 503:
            pass
    assert (await http.get(probes + "/health")).status_code == 200
