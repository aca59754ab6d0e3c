"""The test cluster does what a real one does: Services, names, rollouts, policies, volumes, a registry."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kubernetes import agnhost
from tests.toolchain.kubernetes import daemons
from tests.toolchain.kubernetes.cluster import Cluster
from tests.toolchain.kubernetes.waiting import NodeError, until

SECONDS = 120


def apply(cluster: Cluster, namespace: str, *manifests: Mapping[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(items))


def rolled_out(cluster: Cluster, namespace: str, name: str) -> None:
    wait = ["rollout", "status", f"deployment/{name}", f"--timeout={SECONDS}s"]
    cluster.kubectl("-n", namespace, *wait, timeout=SECONDS + 10)


def field(cluster: Cluster, namespace: str, what: str, path: str) -> str:
    return cluster.kubectl("-n", namespace, "get", what, "-o", f"jsonpath={{{path}}}")


def log_of(cluster: Cluster, namespace: str, manifest: dict[str, Any]) -> str:
    """Run a pod to its end and give what it wrote."""
    apply(cluster, namespace, manifest)
    name = f"pod/{manifest['metadata']['name']}"

    def phase() -> str:
        return field(cluster, namespace, name, ".status.phase")

    until(lambda: phase() in ("Succeeded", "Failed"), SECONDS, f"{name} to end")
    log = cluster.kubectl("-n", namespace, "logs", name)
    assert phase() == "Succeeded", log
    return log


def ask(url: str) -> str:
    """The name of the pod that answers, over a connection of its own; empty where none does."""
    try:
        answer = httpx.get(f"{url}/hostname", trust_env=False, timeout=2)
    except httpx.TransportError:
        return ""
    return answer.text if answer.status_code == httpx.codes.OK else ""


def connects(cluster: Cluster, namespace: str, client: str, target: str) -> bool:
    """Whether a pod gets a TCP connection to host:port."""
    attempt = ["exec", client, "--", "/agnhost", "connect", target, "--timeout=2s"]
    try:
        cluster.kubectl("-n", namespace, *attempt)
    except NodeError:
        return False
    return True


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """A Deployment `web` of two, with a Service at a port of the node; gives the URL that the host uses."""
    spec = agnhost.pod_spec(agnhost.server())
    apply(cluster, namespace, agnhost.deployment("web", 2, spec), agnhost.service("web", "NodePort"))
    rolled_out(cluster, namespace, "web")
    url = f"http://{cluster.address}:{field(cluster, namespace, 'service/web', '.spec.ports[0].nodePort')}"
    # That pods are ready reaches kube-proxy a moment after it reaches us.
    until(lambda: ask(url) != "", SECONDS, "the Service to answer")
    return url


def test_a_service_is_reached_from_the_host_at_every_of_its_addresses(
    cluster: Cluster, namespace: str, web: str
) -> None:
    pods = field(cluster, namespace, "pods", ".items[*].metadata.name").split()
    service = field(cluster, namespace, "service/web", ".spec.clusterIP")
    pod = field(cluster, namespace, "pods", ".items[0].status.podIP")
    for base in (web, f"http://{service}:{agnhost.PORT}", f"http://{pod}:{agnhost.PORT}"):
        assert ask(base) in pods


def test_a_pod_finds_a_service_by_its_name(cluster: Cluster, namespace: str, web: str) -> None:
    client = agnhost.pod(
        "client", agnhost.pod_spec(agnhost.container("connect", f"web:{agnhost.PORT}"), restartPolicy="Never")
    )
    assert log_of(cluster, namespace, client) == ""


def test_a_rolling_update_loses_no_request(cluster: Cluster, namespace: str, web: str) -> None:
    before = set(field(cluster, namespace, "pods", ".items[*].metadata.name").split())
    seen: list[str] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            seen.append(ask(web))

    client = threading.Thread(target=go_on)
    client.start()
    try:
        cluster.kubectl("-n", namespace, "set", "env", "deployment/web", "RELEASE=2")
        rolled_out(cluster, namespace, "web")
        until(lambda: bool({*seen[-1:]} - before), SECONDS, "an answer of a new pod")
    finally:
        over.set()
        client.join()
    after = set(field(cluster, namespace, "pods", ".items[*].metadata.name").split()) - before
    assert after
    assert set(seen) <= before | after, "no request but was answered by a pod"
    assert set(seen) & before
    assert set(seen) & after


def test_a_policy_cuts_off_all_but_what_it_allows(cluster: Cluster, namespace: str, web: str) -> None:
    for name in ("friend", "stranger"):
        apply(cluster, namespace, agnhost.pod(name, agnhost.pod_spec(agnhost.container("pause"))))
    cluster.kubectl(
        "-n",
        namespace,
        "wait",
        "--for=condition=Ready",
        "pod/friend",
        "pod/stranger",
        f"--timeout={SECONDS}s",
        timeout=SECONDS + 10,
    )
    target = f"web:{agnhost.PORT}"
    assert connects(cluster, namespace, "friend", target)
    assert connects(cluster, namespace, "stranger", target)

    apply(cluster, namespace, agnhost.policy("deny", None, [], ["Ingress"]))
    until(lambda: not connects(cluster, namespace, "stranger", target), SECONDS, "the policy to be in force")
    assert not connects(cluster, namespace, "friend", target)
    assert ask(web) == ""

    allowed = [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}], "ports": [{"port": agnhost.PORT}]}]
    apply(cluster, namespace, agnhost.policy("allow", "web", allowed, ["Ingress"]))
    until(lambda: connects(cluster, namespace, "friend", target), SECONDS, "the exception to be in force")
    assert not connects(cluster, namespace, "stranger", target)


def test_a_folder_of_the_host_is_a_volume_under_restricted_pod_security(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)  # the pod's user is not root
    (tmp_path / "weights").write_text("seen")
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadOnlyMany"],
            "hostPath": {"path": str(tmp_path), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": "model"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "model"},
        "spec": {
            "storageClassName": "",
            "accessModes": ["ReadOnlyMany"],
            "volumeName": namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    reader = agnhost.container(
        "mounttest",
        "--file_content=/model/weights",
        volumeMounts=[{"name": "model", "mountPath": "/model", "readOnly": True}],
    )
    volumes = [{"name": "model", "persistentVolumeClaim": {"claimName": "model", "readOnly": True}}]
    apply(cluster, namespace, volume, claim)
    try:
        text = log_of(
            cluster, namespace, agnhost.pod("reader", agnhost.pod_spec(reader, volumes=volumes, restartPolicy="Never"))
        )
    finally:
        cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")
    assert 'content of file "/model/weights": seen' in text


def test_pod_security_refuses_what_is_not_restricted(cluster: Cluster, namespace: str) -> None:
    bold = agnhost.pod("bold", {"containers": [{"name": "bold", "image": agnhost.IMAGE}]})
    with pytest.raises(NodeError, match='violates PodSecurity "restricted'):
        apply(cluster, namespace, bold)


def test_an_image_is_pushed_to_the_registry_and_pulled_from_it(cluster: Cluster, namespace: str) -> None:
    name = f"{cluster.registry}/{namespace}/agnhost:1"
    for command in (["tag", agnhost.IMAGE, name], ["push", "--plain-http", name], ["remove", name]):
        cluster.node.run(*daemons.CTR, "images", *command)
    tags = httpx.get(f"http://{cluster.registry}/v2/{namespace}/agnhost/tags/list", trust_env=False).json()["tags"]
    assert tags == ["1"]
    pulled = agnhost.container("help") | {"image": name, "imagePullPolicy": "Always"}
    said = log_of(cluster, namespace, agnhost.pod("pulled", agnhost.pod_spec(pulled, restartPolicy="Never")))
    assert "Available Commands" in said


def test_an_image_is_loaded_from_an_archive(cluster: Cluster) -> None:
    assert cluster.load_image(cluster.toolchain.image("agnhost")) == [agnhost.IMAGE]
