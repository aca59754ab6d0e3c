"""A stack on the tests' cluster: a checkout of the project, its images in the cluster's registry, the real command."""

from __future__ import annotations

import functools
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx
import openai
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from infra.kubernetes.names import PROBE_PORT
from infra.paths import cache_dir
from scripts.targets.pods import leaving
from scripts.targets.pods import ready as is_ready
from services.worker.model import PreparedModel
from tests.toolchain.docker.release import Release
from tests.toolchain.kubernetes.cluster import Cluster

NAME = "kubernetes"
NAMESPACE = f"diphase-{NAME}"
MAX_LENGTH = 2048
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
CALL_SECONDS = 900.0
FRONT = {"cpu": "50m", "cpuLimit": "2", "memory": "512Mi"}
WORKER = {"cpu": "100m", "cpuLimit": "2", "memory": "2Gi"}


@dataclass
class ClusterStack:
    """The stack `kubernetes` of a release's checkout. `config` is what its file says; `figures` are seconds."""

    release: Release
    cluster: Cluster
    model: PreparedModel
    config: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pods = dict.fromkeys(("gateway", "scheduler", "kv"), FRONT) | {"prefill": WORKER, "decode": WORKER}
        self.config = {
            "target": "kubernetes",
            "model": {"name": self.model.name, "revision": self.model.revision, "maxLength": MAX_LENGTH},
            "engine": {"threads": 1, "maxRunning": 16},
            "gateway": {"requestTimeoutSeconds": 120.0},
            "kv": {"poolMib": 256},
            "kubernetes": {
                "kubeconfig": str(self.cluster.kubeconfig),
                "context": self.cluster.context,
                "modelVolume": {"hostPath": str(self.model.path)},
                "entry": {"serviceType": "NodePort", "addresses": [self.cluster.address]},
                "drainSeconds": 60.0,
                "preStopSeconds": 3,
                "readySeconds": 300,
                **pods,
            },
        }

    @property
    def file(self) -> Path:
        return self.release.folder / "stacks" / f"Pulumi.{NAME}.yaml"

    def configure(self, **groups: Mapping[str, Any]) -> None:
        """Change keys of groups; those of groups inside `kubernetes` are replaced whole."""
        for name, group in groups.items():
            self.config[name] = {**self.config.get(name, {}), **group}
        self.write()

    def write(self) -> None:
        """Write the stack's file, keeping what Pulumi and `images push` have written there."""
        before = yaml.safe_load(self.file.read_text()) if self.file.exists() else {}
        ours = {f"diphase:{name}": group for name, group in self.config.items()}
        config = {**(before.get("config") or {}), **ours}
        self.file.write_text(yaml.safe_dump({**before, "config": config}))

    def read(self) -> None:
        """Take over what a command has written to the stack's file."""
        found = yaml.safe_load(self.file.read_text())["config"]
        self.config = {name.removeprefix("diphase:"): group for name, group in found.items()}

    def try_(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`diphase ARGUMENTS --stack kubernetes`."""
        process = self.start(*arguments)
        try:
            printed, said = process.communicate(timeout=CALL_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, printed, said)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The same as a process, at the head of its own process group."""
        environ = {
            **os.environ,
            **self.release.docker.environ,
            "PYTHONPATH": str(self.release.folder),
            "PATH": f"{self.cluster.toolchain.bin}:{os.environ['PATH']}",
            "DIPHASE_CACHE": str(cache_dir(os.environ)),
        }
        environ.pop("DIPHASE_PROJECT", None)
        return subprocess.Popen(
            [sys.executable, "-c", "from scripts.cli import main; main()", *arguments, "--stack", NAME],
            cwd=self.release.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def diphase(self, *arguments: str) -> str:
        """The same, which must succeed; gives what it printed."""
        done = self.try_(*arguments)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """The real kubectl in the stack's namespace."""
        return self.cluster.kubectl("-n", NAMESPACE, *arguments, stdin=stdin)

    def following_log(self, pod: str, out: IO[bytes]) -> subprocess.Popen[bytes]:
        """A process that writes a pod's log to `out` until the pod ends."""
        command = [str(self.cluster.toolchain.kubectl), "-n", NAMESPACE, "logs", "--follow", pod]
        environ = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        return subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environ)

    def pods(self, role: str | None = None, *, ending: bool = False) -> dict[str, dict[str, Any]]:
        """The pods of a role, or of all, by name; those that were told to end only with `ending`."""
        component = f",app.kubernetes.io/component={role}" if role else ""
        selector = f"app.kubernetes.io/instance={NAME}{component}"
        found = json.loads(self.kubectl("get", "pods", "--selector", selector, "--output=json"))["items"]
        return {one["metadata"]["name"]: one for one in found if ending or not leaving(one)}

    def identities(self) -> dict[str, set[str]]:
        """The pods of each role, as names that no two pods ever share, and how often their containers have started."""
        found: dict[str, set[str]] = {}
        for pod in self.pods().values():
            role = pod["metadata"]["labels"]["app.kubernetes.io/component"]
            restarts = pod["status"].get("containerStatuses", [{}])[0].get("restartCount", 0)
            found.setdefault(role, set()).add(f"{pod['metadata']['uid']} {restarts}")
        return found

    def metrics(self, pod: str) -> list[Sample]:
        """What a pod counts, read through the API server; raises httpx.HTTPError where it does not say."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{PROBE_PORT}/proxy/metrics"
        with self.cluster.api() as api:
            text = api.get(path).raise_for_status().text
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def metric(self, pod: str, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        return total(self.metrics(pod), name, **labels)

    def at_rest(self) -> bool:
        """Whether every pod is ready and none ends, and no request, lease, block or placement is in use anywhere."""
        pods = self.pods(ending=True)
        if not all(map(is_ready, pods.values())):
            return False
        try:
            return all(idle(self.metrics(name)) for name in pods)
        except httpx.HTTPError:
            return False

    @functools.cached_property
    def url(self) -> str:
        """The gateway's, at a port of the node."""
        return str(json.loads(self.diphase("status", "--json"))["gateway"]["url"])

    @property
    def key(self) -> str:
        """The API key that `up` made."""
        return (self.folder / "api_key").read_text()

    @property
    def tls(self) -> ssl.SSLContext:
        """What trusts the gateway's certificate."""
        return ssl.create_default_context(cafile=str(self.folder / "ca.crt"))

    @property
    def folder(self) -> Path:
        """Where `up` leaves what clients need."""
        return self.release.folder / ".diphase" / NAME

    def client(self, timeout: float = 120.0) -> openai.OpenAI:
        """The official client, with the stack's CA, and without retries of its own: a failure must show."""
        http = httpx.Client(verify=self.tls, trust_env=False)
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=self.key, http_client=http, max_retries=0, timeout=timeout
        )

    def answer(self) -> str:
        """The answer to QUESTION, asked by the official client."""
        with self.client() as client:
            answer = client.chat.completions.create(
                model=self.model.name, messages=QUESTION, max_tokens=16, temperature=0, seed=1
            )
        return str(answer.choices[0].message.content)


# What counts something that a request holds; all are zero when no request is there.
HELD = (
    "diphase_gateway_inflight_requests",
    "diphase_scheduler_placements_held",
    "diphase_scheduler_queue_length",
    "diphase_kv_leases_open",
    "diphase_kv_blocks_leased",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
)


def total(samples: Iterable[Sample], name: str, **labels: str) -> float:
    """The sum of a metric's samples that carry these labels."""
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def idle(samples: Sequence[Sample]) -> bool:
    """Whether a role holds nothing for any request."""
    free = total(samples, "diphase_kv_blocks_free") == total(samples, "diphase_kv_blocks")
    return free and not any(total(samples, name) for name in HELD)


def eventually(what: str, holds: Callable[[], object], seconds: float) -> None:
    """Return as soon as `holds` gives something true; fails naming what did not come about."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.5)


@contextmanager
def timed(figures: dict[str, float], what: str) -> Iterator[None]:
    """Note how long the block takes."""
    started = time.monotonic()
    yield
    figures[what] = time.monotonic() - started
