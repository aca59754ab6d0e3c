"""A prefill and a decode worker, a scheduler and the kv service as real processes, spoken to as a gateway does."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from services.common.settings import KvSettings, RoleSettings, SchedulerSettings, WorkerSettings
from tests.ports import free_port
from tests.services.common.certificates import Authority, mount

MODEL = "smol"
LEASE_SECONDS = 4.0
START_SECONDS = 120.0


def until(what: str, condition: Any, seconds: float = 20.0) -> None:
    """Poll; fails naming what did not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.02)


@dataclass
class Fleet:
    """The processes and their addresses by name.

    With `pods` they are set up as in a cluster: certificates, KV by TCP, a scheduler found by DNS, ports for probes.
    """

    folder: Path
    model_path: Path
    lease_seconds: float = LEASE_SECONDS
    drain_seconds: float = 20.0
    pods: bool = False
    authority: Authority = field(default_factory=Authority)
    probes: dict[str, str] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def start(self, package: str, settings: RoleSettings, program: str | None = None) -> None:
        """Start a role; `program` is Python to run instead of its package."""
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **settings.to_environ()}
        environ["EXIT_WITH_PARENT"] = "true"  # a run of tests that is killed leaves nothing
        log = (self.folder / f"{settings.instance}.log").open("wb")
        self.processes[settings.instance] = subprocess.Popen(
            [sys.executable, *(["-c", program] if program else ["-m", f"services.{package}"])],
            env=environ,
            stdout=log,
            stderr=log,
        )
        log.close()
        self.urls[settings.instance] = self._url(settings.port)
        self.probes[settings.instance] = f"http://127.0.0.1:{settings.probe_port}"

    def _url(self, port: int) -> str:
        return f"{'https' if self.pods else 'http'}://127.0.0.1:{port}"

    def certify(self, *names: str, authority: Authority | None = None, trusted: Sequence[Authority] = ()) -> None:
        """Give roles certificates, or new ones; this test's client shows one too, and trusts what they trust."""
        authority = authority or self.authority
        for name in (*names, "test"):
            mount(self.folder / f"tls-{name}", authority.internal(*trusted))
        own = self.folder / "tls-test"
        context = ssl.create_default_context(cafile=own / "ca.crt")
        context.load_cert_chain(own / "tls.crt", own / "tls.key")
        context.check_hostname = False  # httpx checks the address; the roles themselves check diphase.internal
        self.http.close()
        self.http = httpx.Client(timeout=60, verify=context)

    def _common(self, name: str) -> dict[str, Any]:
        if not self.pods:
            return {"instance": name}
        return {"instance": name, "tls_folder": self.folder / f"tls-{name}", "probe_port": free_port()}

    def start_all(self) -> None:
        """Returns when every process is ready."""
        kv, scheduler = free_port(), free_port()
        schedulers, more = self._url(scheduler), {}
        if self.pods:
            self.certify("kv", "scheduler", "prefill", "decode")
            schedulers, more = f"dns+https://localhost:{scheduler}", {"host": "localhost"}
        self.start("kv", KvSettings(port=kv, **self._common("kv")))
        self.start("scheduler", SchedulerSettings(port=scheduler, **more, **self._common("scheduler")))
        for phase in ("prefill", "decode"):
            port = free_port()
            self.start(
                "worker",
                WorkerSettings(
                    port=port,
                    phase=phase,
                    model_path=self.model_path,
                    model_name=MODEL,
                    max_model_len=2048,
                    prefill_max_batch_tokens=256,  # so that what is aborted ends soon
                    advertise_url=self._url(port),
                    scheduler_urls=(schedulers,),
                    kv_url=self._url(kv),
                    kv_transport="tcp" if self.pods else "shm",
                    kv_socket=self.folder / f"{phase}.sock",
                    kv_pool_mib=256,
                    kv_lease_seconds=self.lease_seconds,
                    drain_seconds=self.drain_seconds,
                    **self._common(phase),
                ),
            )
        for name in self.urls:
            until(f"{name} ready\n{self.log(name)}", lambda name=name: self._ready(name), START_SECONDS)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for name, process in self.processes.items():
            assert process.wait(60) == 0, f"{name} ended with {process.returncode}\n{self.log(name)}"
        self.http.close()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-2000:]

    def _ready(self, name: str) -> bool:
        assert self.processes[name].poll() is None, self.log(name)
        try:
            return self.http.get(self.urls[name] + "/ready").status_code == 200
        except httpx.TransportError:
            return False

    def complete(self, worker: str, request_id: str = "r", **body: Any) -> httpx.Response:
        """POST /v1/completions."""
        full = {"model": MODEL, "max_tokens": 1, "temperature": 0, **body}
        return self.http.post(f"{self.urls[worker]}/v1/completions", json=full, headers={"X-Request-Id": request_id})

    def prefill(self, request_id: str, prompt: list[int], **body: Any) -> tuple[int, dict[str, Any]]:
        """The first token and the handle."""
        answer = self.complete(
            "prefill", request_id, prompt=prompt, kv_transfer_params={"do_remote_decode": True}, **body
        )
        assert answer.status_code == 200, answer.text
        document = answer.json()
        return document["choices"][0]["token_ids"][0], document["kv_transfer_params"]

    def release(self, request_id: str, nonce: str | None = None) -> None:
        answer = self.http.post(
            f"{self.urls['prefill']}/v1/kv/release", json={"request_id": request_id, "nonce": nonce}
        )
        assert answer.status_code == 200, answer.text

    def renew(self, handle: dict[str, Any]) -> httpx.Response:
        asked = {"request_id": handle["remote_request_id"], "nonce": handle["nonce"]}
        return self.http.post(f"{handle['lease_url']}/v1/kv/renew", json=asked)

    def metric(self, worker: str, name: str, **labels: str) -> float:
        text = self.http.get(self.urls[worker] + "/metrics").text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def at_rest(self) -> bool:
        """Every block free, no lease open."""
        return all(
            self.metric(worker, "diphase_kv_blocks_free") == self.metric(worker, "diphase_kv_blocks")
            and self.metric(worker, "diphase_kv_leases_open") == 0
            for worker in ("prefill", "decode")
        )
