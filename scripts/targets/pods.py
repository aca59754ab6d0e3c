"""What the API server says of pods, in words. Pure: each takes objects as `kubectl get --output=json` gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

JSON = Mapping[str, Any]


class Unwell(NamedTuple):
    """A pod that is not ready, the container that is to blame, and why.

    `previous` where its log is that of the container before the one that runs now.
    """

    pod: str
    container: str | None
    why: str
    previous: bool = False


def ready(pod: JSON) -> bool:
    """Whether requests are sent to a pod."""
    return not leaving(pod) and _condition(pod, "Ready").get("status") == "True"


def leaving(pod: JSON) -> bool:
    """Whether a pod was told to end."""
    return "deletionTimestamp" in pod["metadata"]


def state(pod: JSON) -> str:
    """A word for how a pod is, as kubectl's own table has it."""
    if leaving(pod):
        return "Terminating"
    for status in _statuses(pod):
        for kind in ("waiting", "terminated"):
            reason = status["state"].get(kind, {}).get("reason")
            if reason and reason != "Completed":
                return str(reason)
    return str(pod.get("status", {}).get("phase", "Unknown"))


def unwell(pods: Iterable[JSON]) -> Iterator[Unwell]:
    """Those that are not ready and should be, the newest first."""
    for pod in sorted(pods, key=lambda one: one["metadata"]["creationTimestamp"], reverse=True):
        if not leaving(pod) and not ready(pod):
            yield _unwell(pod)


def _unwell(pod: JSON) -> Unwell:
    name = pod["metadata"]["name"]
    for status in _statuses(pod):
        if status.get("ready") or status["state"].get("terminated", {}).get("reason") == "Completed":
            continue
        waiting, running = status["state"].get("waiting", {}), status["state"].get("running")
        ended = status["state"].get("terminated") or status.get("lastState", {}).get("terminated")
        if ended:
            times = f", {status['restartCount']} times so far" if status.get("restartCount") else ""
            reason = ended.get("reason", "no reason given")
            why = f"{status['name']} ended with status {ended['exitCode']} ({reason}){times}"
            return Unwell(name, status["name"], why, previous=bool(running))
        if running:
            return Unwell(name, status["name"], f"{status['name']} runs, but is not ready")
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            said = waiting.get("message", "")
            return Unwell(name, None, f"{status['name']}: {waiting['reason']}{f', {said}' if said else ''}")
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return Unwell(name, None, f"it has no node: {scheduled.get('message', scheduled.get('reason', ''))}")
    return Unwell(name, None, state(pod))


def refused(workloads: Iterable[JSON]) -> Iterator[str]:
    """Why a Deployment cannot even make its pods: a quota, an admission policy."""
    for workload in workloads:
        failure = _condition(workload, "ReplicaFailure")
        if failure.get("status") == "True":
            said = failure.get("message", failure.get("reason", ""))
            yield f"{workload['metadata']['name']} cannot make pods: {said}"


def _statuses(pod: JSON) -> Iterator[JSON]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses", [])
    yield from status.get("containerStatuses", [])


def _condition(thing: JSON, kind: str) -> JSON:
    conditions: list[JSON] = thing.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})
