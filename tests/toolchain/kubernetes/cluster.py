"""A real Kubernetes cluster of one node for tests: starts it, talks to it, and says what was wrong in it."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.toolchain.kubernetes import daemons, debian, images, pki, slots
from tests.toolchain.kubernetes.addresses import Addresses
from tests.toolchain.kubernetes.images import Images
from tests.toolchain.kubernetes.node import Node
from tests.toolchain.kubernetes.programs import Toolchain, prepare
from tests.toolchain.kubernetes.slots import Slot
from tests.toolchain.kubernetes.waiting import NodeError, until

# Generous, because what ends on its own is noticed before: these are for what hangs.
API_SECONDS = 180.0
READY_SECONDS = 180.0
# Some end a few times until what they need is there.
GIVE_UP_ENDS = 8
DNS_MANIFEST = Path(__file__).with_name("dns.yaml")
HEALTH_PORT = 20244


class Cluster:
    """A cluster that runs. `address` is the node's: the host reaches NodePorts there, and ClusterIPs and pods too."""

    def __init__(self, node: Node, toolchain: Toolchain) -> None:
        self.node = node
        self.toolchain = toolchain
        self.addresses: Addresses = node.addresses
        self.address = node.addresses.node
        self.kubeconfig = node.state / "pki" / "admin.kubeconfig"
        self.context = node.addresses.name
        # Plain HTTP; images are pushed to and pulled from HOST:PORT/NAME.
        self.registry = node.addresses.registry
        self.images = Images(node)

    @classmethod
    @contextmanager
    def running(cls, cache: Path, *, dns: bool = True, policies: bool = True) -> Iterator[Cluster]:
        """A cluster for as long as the block runs; if this process is killed, the cluster ends as well.

        `dns` answers names of Services; `policies` enforces NetworkPolicies. Raises debian.Unavailable where the
        machine can't run one, SetUpError where it can't be built, and NodeError where it does not start.
        """
        toolchain = make_ready(cache)
        with ExitStack() as stack:
            node = create(slots.take(cache, slots.TESTS), toolchain)
            stack.callback(node.stop)
            cluster = cls(node, toolchain)
            cluster.start(dns=dns, policies=policies)
            yield cluster

    def start(self, *, dns: bool, policies: bool) -> None:
        """Start the programs, each when what it needs answers; raises NodeError."""
        self.node.start(*daemons.FIRST)
        until(self.images.answers, READY_SECONDS, "containerd", self._ended)
        if self.images.forget_containers():
            # It has read them already.
            self.node.restart("containerd")
            until(self.images.answers, READY_SECONDS, "containerd", self._ended)
        for name in ("pause", *(["dns"] if dns else [])):
            self.load_image(self.toolchain.image(name))
        with self.api() as api:
            system = "/api/v1/namespaces/kube-system"
            until(
                lambda: _answers(api, "/readyz") and _answers(api, system), API_SECONDS, "the API server", self._ended
            )
            if dns:
                self.kubectl("apply", "-f", "-", stdin=DNS_MANIFEST.read_text().replace("@IP@", self.addresses.dns))
            # Earlier, the controller manager would have ended for want of the roles that the API server makes.
            self.node.start(*daemons.THEN)
            until(lambda: _node_ready(api, self.context), READY_SECONDS, "the node to be Ready", self._ended)
            if policies:
                # It too would have ended, for want of a node.
                self.node.start(daemons.POLICIES)
            # Without it no pod is admitted.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            until(lambda: _answers(api, account), READY_SECONDS, "the default service account", self._ended)
        if policies:
            with httpx.Client(base_url=f"http://{self.address}:{HEALTH_PORT}", trust_env=False) as router:
                until(lambda: _answers(router, "/healthz"), READY_SECONDS, "kube-router", self._ended)
        if dns:
            wait = ["rollout", "status", "deployment/dns", f"--timeout={READY_SECONDS:.0f}s"]
            self.kubectl("-n", "kube-system", *wait, timeout=READY_SECONDS + 10)
        self.node.slot.whole.touch()

    def kubectl(self, *arguments: str, stdin: str = "", timeout: float = 60.0) -> str:
        """Call the real kubectl and give what it printed; raises NodeError with what it said where it fails."""
        environ = {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.node.state / "discovery")}
        try:
            done = subprocess.run(
                [self.toolchain.kubectl, *arguments],
                input=stdin,
                env=os.environ | environ,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise NodeError(f"`kubectl {' '.join(arguments)}` has not ended within {timeout:.0f} s") from None
        if done.returncode != 0:
            raise NodeError(f"`kubectl {' '.join(arguments)}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def api(self) -> httpx.Client:
        """A client of the API server that may do everything."""
        folder = self.node.state / "pki"
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        return httpx.Client(base_url=self.addresses.api, verify=context, trust_env=False, timeout=5)

    def load_image(self, archive: Path) -> list[str]:
        """Put the images of an archive (`docker save`) into the node, unless they are there; gives their references."""
        return self.images.load(archive)

    def diagnosis(self) -> str:
        """What a person would look at first after a failure: pods, events, and the end of each program's log."""
        parts = [
            ("pods", self._ask("get", "pods", "-A", "-o", "wide")),
            ("events", self._ask("get", "events", "-A", "--sort-by=.lastTimestamp")),
            *((f"{path.stem}.log", self.node.log_tail(path.stem)) for path in sorted(self.node.state.glob("log/*"))),
        ]
        return "\n\n".join(f"--- {title}\n{text.rstrip()}" for title, text in parts)

    def _ask(self, *arguments: str) -> str:
        try:
            return "\n".join(self.kubectl(*arguments, "--request-timeout=5s").splitlines()[-40:])
        except NodeError as error:
            return str(error)

    def _ended(self) -> str | None:
        """The log of a program that ended again and again, if there is one."""
        for name in (*daemons.FIRST, *daemons.THEN, daemons.POLICIES):
            if self.node.ends(name) >= GIVE_UP_ENDS:
                return f"{name} ends again and again:\n{self.node.log_tail(name)}"
        return None


def make_ready(cache: Path) -> Toolchain:
    """Packages and programs that a node needs, installed and built where they are missing."""
    if os.geteuid() != 0:
        raise debian.Unavailable("needs root: a node is made of namespaces, mounts and cgroups")
    debian.require(debian.NODE)
    return prepare(cache)


def create(slot: Slot, toolchain: Toolchain, *, detached: bool = False) -> Node:
    """A node in a slot, furnished and linked to the host, none of its programs started yet."""
    (slot.state / "pki").mkdir(parents=True)
    images.forget_tags(slot.kept / "registry")
    pki.make(slot.state / "pki", slot.addresses)
    daemons.write_configuration(slot.state, slot.addresses)
    return Node(slot, daemons.commands(toolchain, slot.addresses), detached=detached)


def _answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _node_ready(api: httpx.Client, name: str) -> bool:
    path = f"/api/v1/nodes/{name}"
    if not _answers(api, path):
        return False
    conditions: Iterable[dict[str, Any]] = api.get(path).json()["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
