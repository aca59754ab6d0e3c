"""kubectl, for what the subcommands ask of a cluster: it knows every way of logging in that a kubeconfig may name."""

from __future__ import annotations

import json
import re
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scripts.faults import OperationFailed

SECONDS = 30.0
START_SECONDS = 20.0


class Kubectl(NamedTuple):
    """One namespace of one cluster. Methods raise OperationFailed with what kubectl says."""

    kubeconfig: str
    context: str
    namespace: str

    def run(self, *arguments: str, seconds: float = SECONDS) -> str:
        """A command's output."""
        try:
            done = subprocess.run(
                self._command(arguments), capture_output=True, text=True, timeout=seconds, check=False, errors="replace"
            )
        except FileNotFoundError:
            raise OperationFailed(MISSING) from None
        except subprocess.TimeoutExpired:
            raise OperationFailed(
                f"the cluster of context {self.context} has not answered for {seconds:.0f} s"
            ) from None
        if done.returncode != 0:
            raise OperationFailed(f"context {self.context}: {done.stderr.strip() or f'status {done.returncode}'}")
        return done.stdout

    def items(self, kinds: str, selector: str) -> list[dict[str, Any]]:
        """The objects of some kinds that carry labels."""
        found: list[dict[str, Any]] = json.loads(self.run("get", kinds, "--selector", selector, "--output=json"))[
            "items"
        ]
        return found

    @contextmanager
    def proxy(self, port: int) -> Iterator[str]:
        """A local address below which GETs reach that port of the namespace's pods, through the API server.

        Whoever is on this machine can use it meanwhile, so it does nothing else: yields `http://127.0.0.1:N/…/pods/`.
        """
        pods = f"/api/v1/namespaces/{self.namespace}/pods/"
        allowed = f"--accept-paths=^{re.escape(pods)}[^/]+:{port}/proxy/"
        arguments = ["proxy", "--port=0", allowed, "--reject-paths=^$", "--reject-methods=^(POST|PUT|PATCH|DELETE)$"]
        with self._serving(arguments, re.compile(r"Starting to serve on (127\.0\.0\.1:\d+)")) as address:
            yield f"http://{address}{pods}"

    @contextmanager
    def forward(self, target: str, port: int) -> Iterator[int]:
        """A local port that leads to a port of a pod or Service, such as service/gateway."""
        arguments = ["port-forward", "--address=127.0.0.1", target, f":{port}"]
        with self._serving(arguments, re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")) as found:
            yield int(found)

    @contextmanager
    def _serving(self, arguments: Sequence[str], says: re.Pattern[str]) -> Iterator[str]:
        """A kubectl that runs meanwhile, and the address that it says at first."""
        try:
            process = subprocess.Popen(
                self._command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
            )
        except FileNotFoundError:
            raise OperationFailed(MISSING) from None
        try:
            yield _said(process, says)
        finally:
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _command(self, arguments: Sequence[str]) -> list[str]:
        where = [f"--kubeconfig={Path(self.kubeconfig).expanduser()}", f"--context={self.context}"]
        return ["kubectl", *where, f"--namespace={self.namespace}", *arguments]


MISSING = "kubectl is missing: install it (https://kubernetes.io/docs/tasks/tools/), of about the cluster's version"


def _said(process: subprocess.Popen[bytes], says: re.Pattern[str]) -> str:
    assert process.stdout is not None
    deadline, said = time.monotonic() + START_SECONDS, b""
    while time.monotonic() < deadline:
        ready, _, _ = select.select([process.stdout], [], [], deadline - time.monotonic())
        part = process.stdout.read(4096) if ready else b""
        said += part
        found = says.search(said.decode(errors="replace"))
        if found:
            return found.group(1)
        if ready and not part:
            break
    raise OperationFailed(f"kubectl does not serve: {said.decode(errors='replace').strip() or 'it says nothing'}")
