"""A prefill and a decode worker, a scheduler and the kv service as real processes, spoken to as a gateway does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from services.common.settings import KvSettings, RoleSettings, SchedulerSettings, WorkerSettings

MODEL = "smol"
LEASE_SECONDS = 3.0
START_SECONDS = 120.0


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(what: str, condition: Any, seconds: float = 20.0) -> None:
    """Poll; fails naming what did not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.02)


@dataclass
class Fleet:
    """The processes and their addresses by name."""

    folder: Path
    model_path: Path
    lease_seconds: float = LEASE_SECONDS
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
        self.urls[settings.instance] = f"http://127.0.0.1:{settings.port}"

    def start_all(self) -> None:
        """Returns when every process is ready."""
        kv, scheduler = free_port(), free_port()
        self.start("kv", KvSettings(instance="kv", port=kv))
        self.start("scheduler", SchedulerSettings(instance="scheduler", port=scheduler))
        for phase in ("prefill", "decode"):
            port = free_port()
            self.start(
                "worker",
                WorkerSettings(
                    instance=phase,
                    port=port,
                    phase=phase,
                    model_path=self.model_path,
                    model_name=MODEL,
                    max_model_len=2048,
                    advertise_url=f"http://127.0.0.1:{port}",
                    scheduler_urls=(f"http://127.0.0.1:{scheduler}",),
                    kv_url=f"http://127.0.0.1:{kv}",
                    kv_socket=self.folder / f"{phase}.sock",
                    kv_pool_mib=256,
                    kv_lease_seconds=self.lease_seconds,
                    drain_seconds=20,
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
