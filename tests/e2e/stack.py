"""A stack of its own for a test: an isolated project folder, free ports, and the `diphase` command on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import yaml
from prometheus_client.parser import text_string_to_metric_families

from infra.config import PORT_SPAN
from infra.local.supervisord import Supervisord
from infra.paths import StackPaths, cache_dir
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
UP_SECONDS = 240
MODEL = "SmolLM2-135M-Instruct"


def wait_until(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Poll; fails naming what did not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)


def _answers_200(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@dataclass
class Stack:
    """`project` holds Pulumi.yaml, stacks/ and, once up, .diphase/."""

    project: Path
    name: str = "local"
    config: dict[str, Any] = field(default_factory=dict)
    base_port: int = field(default_factory=lambda: free_ports(PORT_SPAN)[0])
    urls: dict[str, str] = field(default_factory=dict)
    api_key: str = ""
    diphase: Path = Path(sys.executable).parent / "diphase"
    _clients: list[openai.OpenAI] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.project / "stacks").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "Pulumi.yaml", self.project)
        (self.project / "infra").symlink_to(ROOT / "infra")
        self.write_config()

    @property
    def config_file(self) -> Path:
        return self.project / "stacks" / f"Pulumi.{self.name}.yaml"

    def write_config(self) -> None:
        """The checkout's own local stack with this stack's ports and changes."""
        document = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text())
        values = document["config"]
        for key, value in {"local": {"basePort": self.base_port}, **self.config}.items():
            group = values.setdefault(f"diphase:{key}", {})
            if isinstance(value, dict):
                group.update(value)
            else:
                values[f"diphase:{key}"] = value
        self.config_file.write_text(yaml.safe_dump(document))

    def run(self, *args: str, check: bool = True, timeout: float = UP_SECONDS) -> subprocess.CompletedProcess[str]:
        """`diphase ARGS --stack NAME`."""
        done = subprocess.run(
            [str(self.diphase), *args, "--stack", self.name],
            cwd=self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, f"diphase {args}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    @property
    def environ(self) -> dict[str, str]:
        """Of `diphase`."""
        return {**os.environ, "DIPHASE_PROJECT": str(self.project), "NO_COLOR": "1"}

    def up(self) -> None:
        """Bring it to what its file says; afterwards `urls` has the address of every role."""
        self.run("up")
        if self.urls:  # no change that a test makes moves a role
            return
        status = self.status()
        self.urls = {role["name"]: role["url"] for role in status["roles"]}
        self.api_key = Path(status["gateway"]["api_key_file"]).read_text().strip()

    def down(self) -> None:
        self.close_clients()
        self.run("down")

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.run("status", "--json", check=False).stdout)
        return status

    @property
    def gateway(self) -> str:
        return f"http://127.0.0.1:{self.base_port}"

    def client(self, **options: Any) -> openai.OpenAI:
        """The official client, without retries of its own: a failure must show."""
        client = openai.OpenAI(
            base_url=f"{self.gateway}/v1", api_key=self.api_key, max_retries=0, timeout=180, **options
        )
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        """Close the connections of all clients given out so far."""
        while self._clients:
            self._clients.pop().close()

    @property
    def run_folder(self) -> Path:
        """Where its sockets are."""
        return StackPaths.of(self.project, self.name, cache_dir(os.environ)).run

    def end(self) -> None:
        """Take it down even if an operation on it was cut short; fails as `down` did."""
        self.close_clients()
        done = self.run("down", check=False)
        if done.returncode != 0:
            self.run("cancel", check=False)
            self.run("down")
        assert done.returncode == 0, f"diphase down: status {done.returncode}\n{done.stderr}"

    def pids(self) -> dict[str, int]:
        """The process of each role, 0 where there is none; of supervisord, for `diphase status` takes a second."""
        return {info["name"]: info["pid"] for info in Supervisord(self.run_folder).infos()}

    def restarted_since(self, before: dict[str, int]) -> set[str]:
        """The roles that have another process now."""
        return {name for name, pid in self.pids().items() if pid not in (0, before[name])}

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Until every role is ready (again)."""
        for name, url in self.urls.items():
            wait_until(f"{name} ready", lambda url=url: _answers_200(f"{url}/ready"), seconds)

    def metric(self, role: str, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        with urllib.request.urlopen(self.urls[role] + "/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def at_rest(self) -> bool:
        """No request, no lease, no block in use anywhere."""
        try:
            workers = [name for name in self.urls if "worker" in name]
            return all(
                self.metric(worker, "diphase_kv_blocks_free") == self.metric(worker, "diphase_kv_blocks")
                and self.metric(worker, "diphase_kv_leases_open") == 0
                and self.metric(worker, "vllm:num_requests_running") == 0
                for worker in workers
            )
        except (urllib.error.URLError, ConnectionError):
            return False
