"""A cluster that ends, or whose run was killed, leaves nothing on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.paths import cache_dir
from tests.kubernetes import agnhost
from tests.toolchain.kubernetes import slots
from tests.toolchain.kubernetes.addresses import Addresses
from tests.toolchain.kubernetes.cluster import Cluster, create, make_ready
from tests.toolchain.kubernetes.images import Images
from tests.toolchain.kubernetes.init import HOME, SYSCTLS
from tests.toolchain.kubernetes.node import ROOT, Node
from tests.toolchain.kubernetes.waiting import until

SECONDS = 120
# Starts a node with etcd in it, says which slot it has, and never ends.
STARTER = """\
import os, signal
from infra.paths import cache_dir
from tests.toolchain.kubernetes import slots
from tests.toolchain.kubernetes.cluster import create, make_ready

cache = cache_dir(os.environ)
node = create(slots.take(cache, slots.TESTS), make_ready(cache))
node.start("etcd")
print(node.addresses.slot, flush=True)
signal.pause()
"""


def inside(pid: int) -> set[int]:
    """The processes of a node: its first and, because that one inherits whoever loses a parent, all below it."""
    first = psutil.Process(pid)
    return {pid, *(each.pid for each in first.children(recursive=True))}


def traces(addresses: Addresses, state: Path) -> list[str]:
    """What a node of these addresses has on the host."""
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").rglob(addresses.name)]
    of_a_node = (str(state), str(HOME), "/run/covered", "/run/sysctl")
    mounts = [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if any(path in line for path in of_a_node)
    ]
    link = Path("/sys/class/net", addresses.link)
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    left = [line for line in routes.splitlines() if addresses.node in line or addresses.link in line]
    files = [str(path) for path in state.iterdir() if path.name != "kept"] if state.exists() else []
    return [*cgroups, *mounts, *left, *files, *([str(link)] if link.exists() else [])]


def sysctls() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}


def test_a_cluster_leaves_no_process_mount_interface_or_cgroup(cluster: Cluster) -> None:
    """A second one, beside the one that all tests share; with a pod, so that there is something to leave."""
    settings = sysctls()
    with Cluster.running(cache_dir(os.environ), dns=False, policies=False) as second:
        assert second.address != cluster.address
        second.load_image(second.toolchain.image("agnhost"))
        arguments = ["run", "pod", f"--image={agnhost.IMAGE}", "--image-pull-policy=Never", "--", "pause"]
        second.kubectl(*arguments)
        second.kubectl("wait", "--for=condition=Ready", "pod/pod", f"--timeout={SECONDS}s", timeout=SECONDS + 10)
        addresses, state = second.addresses, second.node.state
        processes = inside(int((state / "pid").read_text()))
        assert len(processes) > 10
        assert len(traces(addresses, state)) > 4
    assert not [pid for pid in processes if psutil.pid_exists(pid)]
    assert traces(addresses, state) == []
    assert sysctls() == settings


def test_a_node_ends_with_the_process_that_started_it_and_its_slot_is_cleared(cluster: Cluster) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with starter:
        try:
            assert starter.stdout is not None
            slot = int(starter.stdout.readline())
            state = cache_dir(os.environ) / "toolchain" / "nodes" / str(slot)
            until((state / "etcd").exists, SECONDS, "etcd to start")
            processes = inside(int((state / "pid").read_text()))
        finally:
            starter.send_signal(signal.SIGKILL)
    assert len(processes) >= 2
    until(lambda: not any(psutil.pid_exists(pid) for pid in processes), SECONDS, "the node to end")
    assert state.exists()
    slots.take(cache_dir(os.environ), [slot]).lock.close()
    assert traces(Addresses(slot), state) == []


def test_images_stay_for_the_next_node_unless_a_start_has_failed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_dir(os.environ)
    slot = slots.take(cache, slots.TESTS)
    number = slot.addresses.slot
    monkeypatch.setattr(slots, "KEEPS", number)

    def images_of_a_node(slot: slots.Slot, load: bool, good: bool) -> set[str]:
        node = create(slot, cluster.toolchain)
        try:
            node.start("containerd")
            images = Images(node)
            until(images.answers, SECONDS, "containerd to answer")
            if load:
                images.load(cluster.toolchain.image("pause"))
            if good:
                slot.whole.touch()
            return {name for name in images.digests() if not name.startswith("sha256:")}
        finally:
            node.stop()

    try:
        assert images_of_a_node(slot, load=True, good=True) == {cluster.toolchain.reference("pause")}
        assert images_of_a_node(slots.take(cache, [number]), load=False, good=False) == {
            cluster.toolchain.reference("pause")
        }
        assert images_of_a_node(slots.take(cache, [number]), load=False, good=False) == set()
    finally:
        monkeypatch.undo()
        slots.take(cache, [number]).lock.close()


@pytest.fixture
def detached(cluster: Cluster) -> Iterator[Node]:
    """A node that nobody holds, as one that was started by hand."""
    cache = cache_dir(os.environ)
    node = create(slots.take(cache, slots.TESTS), make_ready(cache), detached=True)
    yield node
    node.stop()


def test_a_node_that_was_started_by_hand_is_ended_by_its_slot(detached: Node) -> None:
    processes = inside(int((detached.state / "pid").read_text()))
    assert processes
    slots.end(cache_dir(os.environ), [detached.addresses.slot])
    assert not [pid for pid in processes if psutil.pid_exists(pid)]
    assert traces(detached.addresses, detached.state) == []


def test_a_program_that_ends_is_started_again_and_one_that_is_stopped_is_not(detached: Node) -> None:
    def pids() -> set[int]:
        running = inside(int((detached.state / "pid").read_text()))
        return {pid for pid in running if psutil.Process(pid).name() == "etcd"}

    detached.start("etcd")
    until(lambda: len(pids()) == 1, SECONDS, "etcd to start")
    (first,) = pids()
    os.kill(first, signal.SIGKILL)
    until(lambda: bool(pids() - {first}), SECONDS, "etcd to be started again")
    detached.kill("etcd")
    until(lambda: not pids(), SECONDS, "etcd to end")
    detached.start("etcd")
    until(lambda: len(pids()) == 1, SECONDS, "etcd to start")
