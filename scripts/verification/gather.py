"""Tries a stack: probes its roles, talks to its gateway, reads its workers' counters before and after."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from scripts.verification import counters
from scripts.verification.client import Asker, said
from scripts.verification.facts import Certificate, Facts, Probe, Refusal, Role
from scripts.verification.prompts import prompts
from services.common.errors import DiphaseError
from services.common.http_client import HttpClient

PROBE_SECONDS = 5.0
SETTLE_SECONDS = 5.0  # within which leases are given back after the last answer
OPEN_LEASES = "diphase_kv_leases_open"


class Target(NamedTuple):
    """What is tried. `roles` are (name, URL); `tls` trusts the gateway's certificate, where the public CAs don't.

    `way` is what the roles' URLs begin with where it tells nothing of them, such as a proxy's address.
    """

    stack: str
    gateway: str
    key: str
    roles: Sequence[tuple[str, str]]
    tls: ssl.SSLContext | None = None
    way: str = ""

    @property
    def workers(self) -> dict[str, str]:
        """The workers' URLs by name."""
        return {name: url for name, url in self.roles if "-worker-" in name}


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Worker(msgspec.Struct):
    worker_id: str
    state: str


class _Workers(msgspec.Struct):
    workers: list[_Worker]


async def gather(target: Target, timeout: float, progress: Callable[[str], None] = lambda _what: None) -> Facts:
    """Everything the judges need; `timeout` bounds each answer, in seconds. What fails is a fact, not an exception."""
    client = HttpClient(tls=target.tls)
    try:
        facts = Facts(target.stack, target.gateway)
        progress("roles")
        facts.roles = await asyncio.gather(*(_role(client, name, url) for name, url in target.roles))
        for role in facts.roles:
            role.url = role.url.removeprefix(target.way)
        facts.certificate = await asyncio.to_thread(_certificate, target.gateway, target.tls)
        facts.before = await _counters(client, target.workers)
        asker = Asker(client, target.gateway, target.key, timeout)
        model = await _models(client, target, facts)
        if model is not None:
            for prompt in prompts(secrets.token_hex(4), model.max_model_len):
                for streamed in (True, False):
                    progress(f"{prompt.name} prompt, {'streamed' if streamed else 'whole'}")
                    facts.answers.append(await asker.ask(model.id, prompt, streamed))
            progress("refusals")
            facts.refusals = await _refusals(client, target, model.id)
        progress("counters")
        facts.after = await _settled(client, target.workers)
        return facts
    finally:
        await client.close()


async def _get(client: HttpClient, url: str, key: str | None = None) -> tuple[int | None, bytes]:
    headers = [] if key is None else [("Authorization", f"Bearer {key}")]
    try:
        reply = await client.request("GET", url, headers=headers, timeout=PROBE_SECONDS)
    except DiphaseError as error:
        return None, error.message.encode()
    return reply.status, reply.body


async def _role(client: HttpClient, name: str, url: str) -> Role:
    health, ready = await _probe(client, f"{url}/health"), await _probe(client, f"{url}/ready")
    role = Role(name, url, health, ready)
    if name.startswith("scheduler"):
        status, body = await _get(client, f"{url}/v1/workers")
        with contextlib.suppress(msgspec.MsgspecError):  # not ours, or an error: then nothing is known
            found = msgspec.json.decode(body, type=_Workers).workers
            role.workers = {worker.worker_id: worker.state for worker in found}
        if status == 404:  # a port for probes alone
            _, body = await _get(client, f"{url}/metrics")
            with contextlib.suppress(ValueError):
                role.live = counters.live_workers(body.decode())
    return role


async def _probe(client: HttpClient, url: str) -> Probe:
    status, body = await _get(client, url)
    return Probe(status, "" if status == 200 else body[:300].decode(errors="replace"))


def _certificate(gateway: str, tls: ssl.SSLContext | None) -> Certificate | None:
    parts = urlsplit(gateway)
    if parts.scheme != "https":
        return None
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), PROBE_SECONDS) as raw:
            context = tls or ssl.create_default_context()
            with context.wrap_socket(raw, server_hostname=parts.hostname) as secured:
                peer = secured.getpeercert() or {}
    except OSError as error:  # also ssl.SSLError
        return Certificate(fault=str(error))
    return Certificate((ssl.cert_time_to_seconds(str(peer["notAfter"])) - time.time()) / 86400)


async def _models(client: HttpClient, target: Target, facts: Facts) -> _Model | None:
    status, body = await _get(client, f"{target.gateway}/v1/models", target.key)
    if status != 200:
        facts.models_said = f"{status}: {said(body)}" if status else body.decode(errors="replace")
        return None
    try:
        found = msgspec.json.decode(body, type=_Models).data
    except msgspec.MsgspecError as error:
        facts.models_said = f"no list of models: {error}"
        return None
    facts.models = [model.id for model in found]
    return found[0] if found else None


async def _refusals(client: HttpClient, target: Target, model: str) -> list[Refusal]:
    message = [{"role": "user", "content": "Hello"}]
    good = msgspec.json.encode({"model": model, "messages": message, "max_tokens": 1})
    other = msgspec.json.encode({"model": "no-such-model", "messages": message, "max_tokens": 1})
    cases = [
        ("a wrong key", 401, good, "sk-wrong"),
        ("an unknown model", 404, other, target.key),
        ("a body that is not JSON", 400, b"{", target.key),
    ]
    refusals = []
    for name, want, body, key in cases:
        try:
            reply = await client.request(
                "POST",
                f"{target.gateway}/v1/chat/completions",
                body,
                headers=[("Authorization", f"Bearer {key}")],
                timeout=PROBE_SECONDS,
            )
            refusals.append(Refusal(name, want, reply.status, said(reply.body) if reply.status >= 400 else ""))
        except DiphaseError as error:
            refusals.append(Refusal(name, want, None, error.message))
    return refusals


async def _counters(client: HttpClient, workers: dict[str, str]) -> dict[str, dict[str, float]]:
    """The samples of those that answer in Prometheus' format."""
    answers = await asyncio.gather(*(_get(client, f"{url}/metrics") for url in workers.values()))
    found = {}
    for name, (status, body) in zip(workers, answers, strict=True):
        if status == 200:
            with contextlib.suppress(ValueError):
                found[name] = counters.samples(body.decode())
    return found


async def _settled(client: HttpClient, workers: dict[str, str]) -> dict[str, dict[str, float]]:
    """The samples once no lease is open, or after some seconds anyway."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        found = await _counters(client, workers)
        if not any(counters.total(samples, OPEN_LEASES) for samples in found.values()):
            return found
        if time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)
