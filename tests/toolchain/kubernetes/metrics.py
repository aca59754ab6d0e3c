"""Metrics of the test cluster: the real metrics-server, a real Prometheus, and an API of external metrics.

That API asks Prometheus, by the rules that a stack brings along for prometheus-adapter.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from infra.kubernetes.names import PROBE_PORT
from tests.toolchain.kubernetes import daemons, debian
from tests.toolchain.kubernetes.cluster import Cluster
from tests.toolchain.kubernetes.waiting import until

MANIFEST = Path(__file__).with_name("metrics.yaml")
API = "/apis/external.metrics.k8s.io/v1beta1"
TARGETS = "/targets"
RULES = "autoscaling-rules"
SCRAPE_SECONDS = 3
SECONDS = 120.0


class Metrics:
    """What a cluster knows about its pods while the block of `running` lasts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        address = f"http://{cluster.address}:{daemons.PROMETHEUS_PORT}"
        self._prometheus = httpx.Client(base_url=address, trust_env=False, timeout=10)
        self._rules: dict[str, dict[str, str]] = {}

    @classmethod
    @contextmanager
    def running(cls, cluster: Cluster) -> Iterator[Metrics]:
        """Start all three, and return when the cluster's API has them; raises debian.Unavailable and NodeError."""
        debian.require(debian.METRICS)
        metrics = cls(cluster)
        with metrics._prometheus, metrics._served() as port:
            (cluster.node.state / daemons.PROMETHEUS_CONFIG).write_text(json.dumps(metrics._configuration(port)))
            cluster.node.start(*daemons.METRICS)
            cluster.kubectl("apply", "-f", "-", stdin=metrics._manifest(port))
            until(lambda: metrics.ask("vector(1)") == 1, SECONDS, "Prometheus to answer")
            names = ("v1beta1.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")
            for name in names:
                wait = ["wait", "--for=condition=Available", f"apiservice/{name}", f"--timeout={SECONDS:.0f}s"]
                cluster.kubectl(*wait, timeout=SECONDS + 10)
            try:
                yield metrics
            finally:
                cluster.kubectl("delete", "-f", "-", stdin=metrics._manifest(port))
                cluster.node.kill(*daemons.METRICS)

    def ask(self, query: str) -> float | None:
        """What Prometheus answers, where that is one number."""
        try:
            answer = self._prometheus.get("/api/v1/query", params={"query": query})
        except httpx.TransportError:
            return None
        found = answer.raise_for_status().json()["data"]["result"] if answer.is_success else []
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def value(self, namespace: str, name: str) -> float | None:
        """An external metric, by the rules of the stack in a namespace."""
        if name not in self._rules.get(namespace, {}):
            self._rules[namespace] = self._read_rules(namespace)
        return self.ask(self._rules[namespace][name]) if name in self._rules[namespace] else None

    def _read_rules(self, namespace: str) -> dict[str, str]:
        arguments = ["get", "configmap", RULES, "--ignore-not-found", "--output=json"]
        found = self.cluster.kubectl("-n", namespace, *arguments)
        rules = json.loads(json.loads(found)["data"]["rules.yaml"])["externalRules"] if found else []
        return {rule["name"]["as"]: rule["metricsQuery"] for rule in rules}

    def targets(self) -> list[dict[str, Any]]:
        """The pods of every stack at their port for probes, labelled as is usual: namespace and pod."""
        with self.cluster.api() as api:
            answer = api.get("/api/v1/pods", params={"labelSelector": "app.kubernetes.io/name=diphase"})
        return [
            {
                "targets": [f"{pod['status']['podIP']}:{PROBE_PORT}"],
                "labels": {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]},
            }
            for pod in answer.raise_for_status().json()["items"]
            if pod["status"].get("podIP") and pod["status"]["phase"] == "Running"
        ]

    def _configuration(self, port: int) -> dict[str, Any]:
        # Debian's Prometheus does not know Kubernetes, so it asks here which pods there are.
        tls = {"ca_file": f"{daemons.HOME}/pki/ca.crt", "server_name": "external-metrics.kube-system.svc"}
        url = f"https://{self.cluster.addresses.host}:{port}{TARGETS}"
        found = {"url": url, "refresh_interval": f"{SCRAPE_SECONDS}s", "tls_config": tls}
        every = {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"}
        return {"global": every, "scrape_configs": [{"job_name": "diphase", "http_sd_configs": [found]}]}

    @contextmanager
    def _served(self) -> Iterator[int]:
        """The API of external metrics, from this process; gives its port."""
        pki = self.cluster.node.state / "pki"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "metrics.crt", pki / "metrics.key")
        server = Server((self.cluster.addresses.host, 0), Handler)
        server.metrics = self
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, name="external-metrics")
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join(SECONDS)

    def _manifest(self, port: int) -> str:
        ca = (self.cluster.node.state / "pki" / "ca.crt").read_bytes()
        values = {
            "METRICS_PORT": str(daemons.METRICS_PORT),
            "NODE": self.cluster.address,
            "EXTERNAL_PORT": str(port),
            "HOST": self.cluster.addresses.host,
            "CA": base64.b64encode(ca).decode(),
        }
        text = MANIFEST.read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        return text


class Server(ThreadingHTTPServer):
    """Serves the metrics of one cluster."""

    daemon_threads = True
    metrics: Metrics


class Handler(BaseHTTPRequestHandler):
    """external.metrics.k8s.io, which says of metrics their values only; and what there is for Prometheus to read."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        path = self.path.split("?")[0].rstrip("/")
        parts = path.removeprefix(f"{API}/namespaces/").split("/")
        if path == API:
            self._answer({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API[6:], "resources": []})
            return
        if path == TARGETS:
            self._answer(self.server.metrics.targets())
            return
        value = self.server.metrics.value(*parts) if path.startswith(API) and len(parts) == 2 else None
        if value is None:
            gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": f"no {path}"}
            self._answer(gone, HTTPStatus.NOT_FOUND)
            return
        item = {
            "metricName": parts[1],
            "metricLabels": {},
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "value": f"{round(value * 1000)}m",
        }
        self._answer({"kind": "ExternalMetricValueList", "apiVersion": API[6:], "metadata": {}, "items": [item]})

    def _answer(self, content: dict[str, Any] | list[dict[str, Any]], status: HTTPStatus = HTTPStatus.OK) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: there is a request every three seconds."""
