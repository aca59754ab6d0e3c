"""Containers of the roles, run as a cluster would: no root, no capability, a root file system that nobody can write."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_ports
from tests.toolchain.docker.daemon import Docker

KEY = "a-key-of-tests"
MODEL = "smollm2"
READY_SECONDS = 180.0
NAMES = ("kv-0", "scheduler-0", "prefill-worker-0", "decode-worker-0", "gateway-0")


class Service:
    """The five roles in containers on the host's loopback address."""

    def __init__(self, docker: Docker, images: Mapping[str, str], model: Path, folder: Path) -> None:
        self.docker = docker
        self.ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        keys = folder / "api_keys.json"
        keys.write_text(json.dumps([{"name": "test", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]))
        keys.chmod(0o644)
        volumes = {"/model": model, "/etc/diphase/keys": folder}
        folder.chmod(0o755)
        for name in NAMES:
            role = "worker" if "worker" in name else name.rpartition("-")[0]
            self._start(name, images[role], self._environ(name), volumes)
        self.wait()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def inside(self, name: str, *command: str) -> str:
        """What a command prints in a container."""
        return self.docker("exec", name, *command)

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(self.docker.inspect(name)["State"]))
        return found

    def wait(self) -> None:
        """Until every role takes requests; says which one does not and what it logged."""
        deadline = time.monotonic() + READY_SECONDS
        waiting = set(NAMES)
        while waiting:
            waiting -= {name for name in waiting if self._ready(name)}
            stopped = [name for name in waiting if not self.state(name)["Running"]]
            if stopped or (waiting and time.monotonic() > deadline):
                name = min(stopped or waiting)
                raise AssertionError(f"{name} is not ready: {self.state(name)}\n{self.docker.logs(name)}")
            time.sleep(0.2)

    def _ready(self, name: str) -> bool:
        try:
            return httpx.get(f"{self.url(name)}/ready", trust_env=False).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def healthy(self, name: str) -> bool:
        """Whether the image's own health check says so, asked once."""
        found: dict[str, Any] = json.loads(json.dumps(self.docker.inspect(name)["Config"]))
        kind, *command = found["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.inside(name, *command) == ""

    def _start(self, name: str, image: str, environ: Mapping[str, str], volumes: Mapping[str, Path]) -> None:
        settings = [part for key, value in environ.items() for part in ("--env", f"{key}={value}")]
        mounts = [part for at, path in volumes.items() for part in ("--volume", f"{path}:{at}:ro")]
        writable = ("--tmpfs", "/tmp:mode=1777", "--tmpfs", "/cache:mode=0755,uid=10001,gid=10001")
        locked = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        options = [*locked, *writable, *settings, *mounts]
        self.docker("run", "--detach", "--name", name, "--network", "host", *options, image)

    def _environ(self, name: str) -> dict[str, str]:
        common = {"INSTANCE": name, "HOST": "127.0.0.1", "PORT": str(self.ports[name])}
        model = {"MODEL_PATH": "/model", "MODEL_NAME": MODEL, "MAX_MODEL_LEN": "1024"}
        schedulers = {"SCHEDULER_URLS": self.url("scheduler-0")}
        if name == "gateway-0":
            return common | model | schedulers | {"GATEWAY_API_KEYS_FILE": "/etc/diphase/keys/api_keys.json"}
        if "worker" in name:
            return common | model | schedulers | self._worker(name)
        return common

    def _worker(self, name: str) -> dict[str, str]:
        return {
            "PHASE": name.partition("-")[0],
            "ADVERTISE_URL": self.url(name),
            "KV_URL": self.url("kv-0"),
            "KV_TRANSPORT": "tcp",
            "KV_SOCKET": "/tmp/kv.sock",
            "KV_POOL_MIB": "256",
            "NATIVE_FOLDER": "/cache/native",
        }
