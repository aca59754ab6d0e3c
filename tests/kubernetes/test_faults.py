"""Faults under load: every request ends with the right text or a clean error, and nothing stays in use."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from infra.kubernetes.names import ROLE_PORT, TRANSFER_PORT
from tests.kubernetes.stack import NAME, ClusterStack, eventually
from tests.kubernetes.streams import Streams, streaming

ANSWER_SECONDS = 120.0
# A successor is placed, loads its model and registers.
SUCCESSOR_SECONDS = 180.0
KILL = """
import os, signal
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    if pid != os.getpid() and b"services.worker" in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0"):
        if int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]) == 1:
            os.kill(pid, signal.SIGKILL)
            print(pid)
"""


@pytest.fixture(scope="module", autouse=True)
def doubled(running: ClusterStack) -> Iterator[None]:
    """Two pods of each role but kv, so that one may go."""
    roles = ("gateway", "prefill", "decode")
    running.configure(**{role: {"replicas": 2} for role in roles})
    running.diphase("up")
    yield
    running.configure(**{role: {"replicas": 1} for role in roles})
    running.diphase("up")


def busy(stack: ClusterStack, role: str) -> str:
    """A pod of workers that has requests now."""
    found: list[str] = []

    def look() -> bool:
        found.extend(name for name in stack.pods(role) if stack.metric(name, "vllm:num_requests_running") > 1)
        return bool(found)

    eventually(f"a {role} with requests", look, ANSWER_SECONDS)
    return found[0]


def unharmed(seen: Streams) -> None:
    """No client has noticed anything but a pause."""
    assert not seen.failed
    assert not seen.wrong


def test_a_decode_worker_is_killed(stack: ClusterStack, expected: dict[str, str]) -> None:
    with streaming(stack, expected) as seen:
        pod = busy(stack, "decode-worker")
        before = stack.identities()["decode-worker"]
        assert stack.kubectl("exec", pod, "--", "python", "-c", KILL).strip()
        eventually(f"{pod} to start again", lambda: stack.identities()["decode-worker"] != before, SUCCESSOR_SECONDS)
        seen.more(8, ANSWER_SECONDS)
    unharmed(seen)
    assert pod in stack.pods("decode-worker"), "the container was started again, in its pod"


def test_the_node_is_drained(stack: ClusterStack, expected: dict[str, str]) -> None:
    """The disruption budgets let one pod of a role go, and the next when its successor is ready: here on the same
    node, which takes pods again once the first ones are gone.
    """
    cluster, before = stack.cluster, stack.identities()

    def drain() -> None:
        selector = f"--pod-selector=app.kubernetes.io/instance={NAME}"
        cluster.kubectl("drain", cluster.context, selector, "--delete-emptydir-data", "--timeout=400s", timeout=420)

    with streaming(stack, expected) as seen:
        draining = threading.Thread(target=drain)
        draining.start()
        try:
            eventually("pods without a node", lambda: any(map(unplaced, stack.pods().values())), ANSWER_SECONDS)
        finally:
            cluster.kubectl("uncordon", cluster.context)
            draining.join()
        seen.more(8, ANSWER_SECONDS)
    unharmed(seen)
    after = stack.identities()
    assert not [role for role in before if before[role] & after[role]], "the same pods as before"


def unplaced(pod: dict[str, Any]) -> bool:
    """Whether no node takes it."""
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", []))


def test_a_scheduler_is_deleted(stack: ClusterStack, expected: dict[str, str]) -> None:
    pod = next(iter(stack.pods("scheduler")))
    with streaming(stack, expected) as seen:
        stack.kubectl("delete", "pod", pod)
        eventually("a successor", lambda: len(stack.pods("scheduler")) == 2, SUCCESSOR_SECONDS)
        seen.more(16, ANSWER_SECONDS)
    unharmed(seen)


CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except OSError:
    print("no")
else:
    print("yes")
"""


@contextmanager
def cut_off(stack: ClusterStack, role: str, port: int) -> Iterator[None]:
    """Nobody reaches a port of a role any more, connections that there are included."""
    policy = json.loads(stack.kubectl("get", "networkpolicy", role, "--output=json"))
    ingress = policy["spec"]["ingress"]
    others = [rule for rule in ingress if port not in [each["port"] for each in rule["ports"]]]
    assert others != ingress
    addresses = [pod["status"]["podIP"] for pod in stack.pods(role).values()]
    source = next(iter(stack.pods("decode-worker")))

    def reached(address: str) -> bool:
        said = stack.kubectl("exec", source, "--", "python", "-c", CONNECT, address, str(port))
        return said.strip() == "yes"

    def set_ingress(rules: object) -> None:
        change = [{"op": "replace", "path": "/spec/ingress", "value": rules}]
        stack.kubectl("patch", "networkpolicy", role, "--type=json", f"--patch={json.dumps(change)}")

    set_ingress(others)
    try:
        for address in addresses:
            eventually(f"{role} to be cut off", lambda address=address: not reached(address), ANSWER_SECONDS)
            forget = ["conntrack", "-D", "-p", "tcp", "-d", address, "--dport", str(port)]
            stack.cluster.node.run("sh", "-c", f"{' '.join(forget)} || true")
        yield
    finally:
        set_ingress(ingress)
    for address in addresses:
        eventually(f"{role} to be reached again", lambda address=address: reached(address), ANSWER_SECONDS)


def test_kv_is_cut_off(stack: ClusterStack, expected: dict[str, str]) -> None:
    def failures() -> float:
        return sum(stack.metric(pod, "diphase_kv_directory_failures_total") for pod in stack.pods("prefill-worker"))

    before = failures()
    with streaming(stack, expected) as seen:
        with cut_off(stack, "kv", ROLE_PORT):
            seen.more(16, ANSWER_SECONDS)
            assert failures() > before
        seen.more(8, ANSWER_SECONDS)
    unharmed(seen)


def test_decode_is_cut_off_from_prefill(stack: ClusterStack, expected: dict[str, str]) -> None:
    """No KV moves any more: here no request can be answered, and each is told so in its time."""
    with streaming(stack, expected) as seen:
        with cut_off(stack, "prefill-worker", TRANSFER_PORT):
            eventually("requests of all clients to end", lambda: len(seen.failed) >= 8, ANSWER_SECONDS * 2)
        seen.more(8, ANSWER_SECONDS)
    assert not seen.wrong
    limit = stack.config["gateway"]["requestTimeoutSeconds"]
    for one in seen.failed:
        assert one.is_clean, repr(one.error)
        assert one.seconds < limit + 5
