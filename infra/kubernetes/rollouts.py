"""The end of an `up`: every workload runs what the stack says now, and nothing older; the way in has an address.

Pulumi's Kubernetes provider could wait, too. But as long as a Deployment's controller has not seen a change, the old
pods look to it like what is waited for, and an `up` of a release that crashes would succeed; and whenever it looks
again, a pod that has just been added and is not ready looks to it like a change. The controller's own account,
`kubectl rollout status`, compares generations.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, UpdateResult

from infra.kubernetes.access import Access, kubeconfig_file
from infra.provider import StackProvider

WORKLOADS = frozenset({"Deployment", "StatefulSet"})
ASK_SECONDS = 10
POLL_SECONDS = 2.0
ANSWER_SECONDS = 30.0  # beyond its own time limit, kubectl may be slow to answer
MISSING = "kubectl is missing: install it (https://kubernetes.io/docs/tasks/tools/), of about the cluster's version"


class RolloutError(Exception):
    """A workload does not get to what it is to be; the message names it."""


def await_rollouts(kubectl: Sequence[str], workloads: Sequence[str], seconds: float) -> None:
    """Return when each of the workloads, such as deployment/gateway, has only pods of its template, all available.

    They roll at the same time, so the deadline is of all of them. Raises RolloutError.
    """
    deadline = time.monotonic() + seconds
    for workload in workloads:
        left = max(1.0, deadline - time.monotonic())
        command = [*kubectl, "rollout", "status", workload, f"--timeout={left:.0f}s"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=left + ANSWER_SECONDS, check=False, errors="replace"
            )
        except FileNotFoundError:
            raise RolloutError(MISSING) from None
        except subprocess.TimeoutExpired:
            raise RolloutError(f"{workload}: the cluster does not answer") from None
        if done.returncode != 0:
            said = done.stderr.strip().removeprefix("error: ") or f"status {done.returncode}"
            raise RolloutError(f"{workload} is not what the stack says after {seconds:.0f} s: {said}")


def rolling(kubectl: Sequence[str], workloads: Sequence[str]) -> bool:
    """Whether any of the workloads still has pods of an older template; false where the cluster does not say."""
    command = [*kubectl, "get", *workloads, "--ignore-not-found", "--output=json", f"--request-timeout={ASK_SECONDS}s"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    if done.returncode != 0 or not done.stdout.strip():
        return False
    found = json.loads(done.stdout)
    return any(map(_is_rolling, found.get("items", [found])))


def _is_rolling(workload: Mapping[str, Any]) -> bool:
    status = workload.get("status", {})
    seen = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    return not seen or status.get("updatedReplicas", 0) != status.get("replicas", 0)


def await_address(kubectl: Sequence[str], service: str, seconds: float) -> str:
    """The name or address that a Service of type LoadBalancer got. Raises RolloutError when there is none in time."""
    deadline = time.monotonic() + seconds
    path = "--output=jsonpath={.status.loadBalancer.ingress[0]['hostname','ip']}"
    said = ""
    while True:
        command = [*kubectl, "get", "service", service, path, f"--request-timeout={ASK_SECONDS}s"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False, errors="replace"
            )
            given, said = done.stdout.split(), done.stderr.strip()
        except FileNotFoundError:
            raise RolloutError(MISSING) from None
        except subprocess.TimeoutExpired:
            given, said = [], "the cluster does not answer"
        if given:
            return given[0]
        if time.monotonic() >= deadline:
            why = said or "look at its events with `kubectl describe`, and at the controller of load balancers"
            raise RolloutError(f"service/{service} has no address after {seconds:.0f} s: {why}")
        time.sleep(POLL_SECONDS)


class RolloutsProvider(StackProvider):
    """Making it is waiting; nothing remains to be deleted."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        return CreateResult("rollouts", self._wait(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        # What failed or was killed is not recorded: going back from it looks like no change at all.
        changed = any(_olds.get(key) != _news.get(key) for key in ("workloads", "balanced"))
        if changed:
            return DiffResult(True)
        with _kubectl(_news) as kubectl:
            return DiffResult(rolling(kubectl, sorted(_news["workloads"])))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        return UpdateResult(self._wait(_news))

    @staticmethod
    def _wait(props: dict[str, Any]) -> dict[str, Any]:
        seconds, balanced = float(props["seconds"]), props.get("balanced")  # what is None does not travel
        with _kubectl(props) as kubectl:
            await_rollouts(kubectl, sorted(props["workloads"]), seconds)
            return {**props, "address": await_address(kubectl, balanced, seconds) if balanced else ""}


class Rollouts(Resource, module="kubernetes", name="Rollouts"):
    """All of `workloads` (deployment/gateway → its manifest) are rolled out, and the Service `balanced` is reached.

    `address` is what the cluster's load balancers gave that Service; without one it is empty.
    """

    address: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        access: Access,
        namespace: str,
        workloads: Mapping[str, Mapping[str, Any]],
        balanced: str | None,
        seconds: int,
        opts: pulumi.ResourceOptions,
    ) -> None:
        props = {
            "kubeconfig": access.kubeconfig,
            "context": access.context,
            "namespace": namespace,
            "workloads": {key: _digest(manifest["spec"]) for key, manifest in workloads.items()},
            "balanced": balanced,
            "seconds": seconds,
            "address": None,
        }
        super().__init__(RolloutsProvider(), name, props, opts)


@contextmanager
def _kubectl(props: Mapping[str, Any]) -> Iterator[list[str]]:
    with kubeconfig_file(props["kubeconfig"]) as file:
        yield ["kubectl", f"--kubeconfig={file}", f"--context={props['context']}", f"--namespace={props['namespace']}"]


def _digest(spec: Mapping[str, Any]) -> pulumi.Output[str]:
    return pulumi.Output.from_input(spec).apply(
        lambda found: hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
    )
