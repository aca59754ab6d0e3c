"""The kubernetes target on a real cluster: images, `diphase`, clients, policies, changes, a bad release."""

from __future__ import annotations

import base64
import json
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509

from infra.kubernetes.names import ROLES
from infra.kubernetes.network_policy import EDGES
from infra.kubernetes.pod import ports
from tests.kubernetes import agnhost
from tests.kubernetes.stack import QUESTION, ClusterStack, eventually, timed
from tests.toolchain.kubernetes.waiting import NodeError

# Kubelet brings a changed Secret to a pod within about a minute, more on a busy machine.
SECRET_SECONDS = 240.0


def test_every_role_is_ready(stack: ClusterStack, figures: dict[str, float]) -> None:
    figures |= stack.figures
    roles = json.loads(stack.diphase("status", "--json"))["roles"]
    assert len(roles) == 6
    assert all(role["ready"] and role["node"] == stack.cluster.context for role in roles)


def test_the_official_client_is_answered_through_tls(stack: ClusterStack) -> None:
    whole = stack.answer()
    assert "Paris" in whole
    with stack.client() as client:
        chunks = client.chat.completions.create(
            model=stack.model.name, messages=QUESTION, max_tokens=16, temperature=0, seed=1, stream=True
        )
        parts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(parts) == whole


def test_verify_finds_nothing_wrong(stack: ClusterStack) -> None:
    found = json.loads(stack.diphase("verify", "--json", "--ttft", "60", "--rate", "0"))
    assert found["verdict"] == "ok"
    said = {finding["check"]: finding for finding in found["findings"]}
    assert "over tcp" in said["KV handoff"]["found"]
    assert said["TLS"]["verdict"] == "ok"
    assert sum(check.endswith(" knows") for check in said) == 2


def test_a_second_preview_changes_nothing(stack: ClusterStack, figures: dict[str, float]) -> None:
    with timed(figures, "preview without changes"):
        stack.diphase("preview", "--expect-no-changes")
    assert "no changes" in stack.try_("up").stderr


PROBE = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def reached(target):
    try:
        socket.create_connection(tuple(target), 3).close()
    except OSError:
        return False
    return True
targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(list(pool.map(reached, targets))))
"""


def targets_of(stack: ClusterStack) -> dict[tuple[str, int], tuple[str, int]]:
    """Role and port → address, of every port that is listened on."""
    found = {}
    for role in ROLES:
        address = next(iter(stack.pods(role).values()))["status"]["podIP"]
        found |= {(role, port): (address, port) for port in ports(role).values()}
    return found


@pytest.mark.parametrize("source", ROLES)
def test_a_role_reaches_exactly_what_it_must(stack: ClusterStack, source: str) -> None:
    targets = {what: address for what, address in targets_of(stack).items() if what[0] != source}
    pod = next(iter(stack.pods(source)))
    said = stack.kubectl("exec", pod, "--", "python", "-c", PROBE, json.dumps(list(targets.values())))
    reached = {what for what, answer in zip(targets, json.loads(said), strict=True) if answer}
    assert reached == {(edge.target, edge.port) for edge in EDGES if edge.source == source}


def test_from_outside_only_the_gateway_answers(stack: ClusterStack, namespace: str) -> None:
    """From a pod of another namespace. From the node every port answers, for kubelet's sake: all are listened on."""
    targets = targets_of(stack)
    said = stack.cluster.node.run("python3", "-c", PROBE, json.dumps(list(targets.values())))
    assert all(json.loads(said))
    spec = agnhost.pod_spec(agnhost.container("pause"))
    stack.cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(agnhost.pod("outside", spec)))
    stack.cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/outside", "--timeout=60s")
    reached, refused = set(), list[str]()
    for what, (address, port) in targets.items():
        command = ["/agnhost", "connect", f"{address}:{port}", "--timeout=2s"]
        try:
            stack.cluster.kubectl("-n", namespace, "exec", "outside", "--", *command)
        except NodeError as error:
            refused.append(str(error))
        else:
            reached.add(what)
    assert all("TIMEOUT" in error or "REFUSED" in error for error in refused)
    assert reached == {("gateway", 8443)}


def test_a_change_rolls_the_pods_that_read_it_and_no_others(stack: ClusterStack) -> None:
    before = stack.identities()
    stack.configure(scheduler={"maxQueue": 99})
    stack.diphase("up")
    after = stack.identities()
    assert {role for role in ROLES if before[role] != after[role]} == {"scheduler"}
    assert "Paris" in stack.answer()


def test_new_certificates_reach_pods_and_clients_and_nobody_restarts(stack: ClusterStack) -> None:
    """One that clients see, for one more address; and a new authority, which is trusted beside the old one at first."""
    before, entry = stack.identities(), stack.config["kubernetes"]["entry"]
    stack.configure(
        kubernetes={
            "entry": {**entry, "addresses": [*entry["addresses"], "127.0.0.9"]},
            "certificates": {"rotation": 1},
        }
    )
    stack.diphase("up")
    secret = json.loads(stack.kubectl("get", "secret", "kv-tls", "--output=json"))
    bundle = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
    assert len(bundle.get_ca_certs()) == 2
    eventually("the new certificate", lambda: "127.0.0.9" in shown_names(stack), SECRET_SECONDS)
    assert stack.identities() == before
    assert "Paris" in stack.answer()
    stack.diphase("preview", "--expect-no-changes")


def shown_names(stack: ClusterStack) -> list[str]:
    """The addresses in the certificate that the gateway shows."""
    parts = urlsplit(stack.url)
    assert parts.hostname
    address = (parts.hostname, parts.port or 443)
    with (
        socket.create_connection(address, 5) as raw,
        stack.tls.wrap_socket(raw, server_hostname=parts.hostname) as secured,
    ):
        der = secured.getpeercert(binary_form=True)
    assert der
    found = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(address) for address in found.value.get_values_for_type(x509.IPAddress)]


def replicas(stack: ClusterStack) -> int:
    return int(stack.kubectl("get", "deployment", "gateway", "--output=jsonpath={.spec.replicas}"))


def test_replicas_are_the_stacks_unless_something_else_decides_them(stack: ClusterStack) -> None:
    stack.configure(kubernetes={"autoscaled": ["gateway"]})
    stack.diphase("up")
    stack.kubectl("scale", "deployment/gateway", "--replicas=2")
    stack.diphase("preview", "--expect-no-changes")
    stack.configure(gateway={"maxInflight": 512})
    stack.diphase("up")
    assert replicas(stack) == 2
    stack.configure(kubernetes={"autoscaled": []})
    stack.diphase("up")
    assert replicas(stack) == 1, "whoever scaled it by hand does not keep it"


def test_clients_come_in_by_the_address_of_a_load_balancer(stack: ClusterStack) -> None:
    """The cluster has none, so the test gives the address; `up` waits for it."""
    entry, address = stack.config["kubernetes"]["entry"], "203.0.113.7"
    status = json.dumps({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}})
    stack.configure(kubernetes={"entry": {"serviceType": "LoadBalancer"}})
    try:
        process = stack.start("up")
        eventually("a Service for a load balancer", lambda: gateway_service(stack)["type"] == "LoadBalancer", 60)
        stack.kubectl("patch", "service", "gateway", "--subresource=status", "--type=merge", "--patch", status)
        printed, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert f"https://{address}" in printed
        stack.diphase("preview", "--expect-no-changes")
    finally:
        stack.configure(kubernetes={"entry": entry})
        stack.diphase("up")
    assert "Paris" in stack.answer()


def gateway_service(stack: ClusterStack) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stack.kubectl("get", "service", "gateway", "--output=json"))["spec"]
    return found


def test_a_bad_release_fails_in_time_and_the_old_pods_serve_on(stack: ClusterStack) -> None:
    before, digests = stack.identities(), stack.config["images"]["digests"]
    # A gateway where the scheduler should be: it lacks settings, and says so.
    stack.configure(images={"digests": {**digests, "scheduler": digests["gateway"]}}, kubernetes={"readySeconds": 30})
    try:
        failed = stack.try_("up")
        assert failed.returncode == 1
        assert "scheduler-" in failed.stderr
        assert "ended with status 1" in failed.stderr
        assert "gateway: " in failed.stderr, "the end of its log"
        after = stack.identities()
        assert before["scheduler"] <= after["scheduler"]
        assert "Paris" in stack.answer()
    finally:
        stack.configure(images={"digests": digests}, kubernetes={"readySeconds": 300})
        stack.diphase("up")
    assert stack.identities() == before
    stack.diphase("preview", "--expect-no-changes")
