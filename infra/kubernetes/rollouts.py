"""The end of an `up`: every workload runs what the stack says now, and nothing older.

Pulumi's Kubernetes provider waits for a changed Deployment, too. But as long as the Deployment's controller has not
seen the change, the old pods look like what is waited for; then an `up` of a release that crashes would succeed. Its
controller's own account, `kubectl rollout status`, compares generations.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, UpdateResult

from infra.config.kubernetes import Kubernetes
from infra.provider import StackProvider

WORKLOADS = frozenset({"Deployment", "StatefulSet"})
ASK_SECONDS = 10
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


class RolloutsProvider(StackProvider):
    """Making it is waiting; nothing remains to be deleted."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        self._wait(props)
        return CreateResult("rollouts", props)

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        # What failed or was killed is not recorded: going back from it looks like no change at all.
        changed = _olds.get("workloads") != _news["workloads"]
        return DiffResult(changed or rolling(_kubectl(_news), sorted(_news["workloads"])))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        self._wait(_news)
        return UpdateResult(_news)

    @staticmethod
    def _wait(props: Mapping[str, Any]) -> None:
        await_rollouts(_kubectl(props), sorted(props["workloads"]), float(props["seconds"]))


class Rollouts(Resource, module="kubernetes", name="Rollouts"):
    """All of `workloads` (deployment/gateway → its manifest) are rolled out."""

    def __init__(
        self,
        name: str,
        config: Kubernetes,
        namespace: str,
        workloads: Mapping[str, Mapping[str, Any]],
        opts: pulumi.ResourceOptions,
    ) -> None:
        props = {
            "kubeconfig": config.kubeconfig,
            "context": config.context,
            "namespace": namespace,
            "workloads": {key: _digest(manifest["spec"]) for key, manifest in workloads.items()},
            "seconds": config.ready_seconds,
        }
        super().__init__(RolloutsProvider(), name, props, opts)


def _kubectl(props: Mapping[str, Any]) -> list[str]:
    where = [f"--kubeconfig={Path(props['kubeconfig']).expanduser()}", f"--context={props['context']}"]
    return ["kubectl", *where, f"--namespace={props['namespace']}"]


def _digest(spec: Mapping[str, Any]) -> pulumi.Output[str]:
    return pulumi.Output.from_input(spec).apply(
        lambda found: hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
    )
