"""The kubernetes target: a stack's objects in a cluster that exists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi

from infra.config import StackConfig
from infra.kubernetes import autoscaling, entry, gateway, kv, namespace, network_policy, scheduler, secrets, workers
from infra.kubernetes.access import Access
from infra.kubernetes.api_key import ApiKey
from infra.kubernetes.certificates import Certificates
from infra.kubernetes.cluster import Cluster
from infra.kubernetes.names import CLIENT_PORT, INTERNAL_NAME, MANIFEST, ROLE_PORT, ROLES, Names, Role
from infra.kubernetes.objects import KubernetesObject, declare
from infra.kubernetes.plan import Plan
from infra.kubernetes.rollouts import WORKLOADS, Rollouts

EDGE = "edge"  # owner of the certificate that clients see


class KubernetesStack:
    """Every resource of a stack in a cluster; `outputs` is what the stack exports.

    Without `access` the cluster is that of the configuration. `project` is not needed here; targets are called alike.
    """

    def __init__(self, config: StackConfig, project: Path, stack: str, access: Access | None = None) -> None:
        self._config, self._stack, self._access = config, stack, access or Access.of(config.kubernetes)
        self._key = ApiKey("api-key")
        keys = self._key.sha256.apply(lambda found: f"api-keys-{found[:10]}")
        self._plan = Plan(config, Names.of(stack, config.kubernetes.namespace), keys)
        self._certificates = Certificates("certificates", config.kubernetes.certificates, self._owners())
        cluster = Cluster("cluster", self._access, self._plan.names.namespace)
        # Replicas are what the stack says at first; then they are the autoscaler's.
        scaled = {f"deployment/{role}": ["spec.replicas"] for role in autoscaling.scaled_roles(config)}
        declared = list(manifests(self._plan))
        self._objects = declare([*declared, *self._secrets()], cluster, scaled, self._access.depends_on)
        self._rollouts = self._await(declared)

    def _await(self, declared: Sequence[MANIFEST]) -> Rollouts:
        kubernetes, namespace = self._config.kubernetes, self._plan.names.namespace
        workloads = {f"{m['kind'].lower()}/{m['metadata']['name']}": m for m in declared if m["kind"] in WORKLOADS}
        balanced = "gateway" if entry.is_balanced(kubernetes.entry) else None
        after = pulumi.ResourceOptions(depends_on=[self._objects[key] for key in [*workloads, "service/gateway"]])
        seconds = kubernetes.ready_seconds
        return Rollouts("rollouts", self._access, namespace, workloads, balanced, seconds, after)

    def _owners(self) -> dict[str, list[str]]:
        """Whose certificates there are, and the names in each."""
        host = self._plan.names.host
        owners: dict[str, list[str]] = {role: [INTERNAL_NAME, role, host(role), f"*.{host(role)}"] for role in ROLES}
        edge = {EDGE: list(entry.own_certificate_names(self._plan))}
        return {**owners, **(edge if entry.has_own_certificate(self._plan) else {})}

    def _secrets(self) -> Iterator[MANIFEST]:
        certificates = self._certificates
        yield secrets.keys_secret(self._plan, self._key.hashes)
        for role in ROLES:
            yield secrets.tls_secret(self._plan, role, certificates.pair(role), certificates.trusted)
        if entry.has_own_certificate(self._plan):
            yield secrets.edge_secret(self._plan, certificates.pair(EDGE))
            if self._config.kubernetes.entry.kind == "gatewayApi":
                yield secrets.trusted(self._plan, entry.CA_CONFIG_MAP, certificates.trusted)

    @property
    def outputs(self) -> dict[str, pulumi.Input[object]]:
        """The gateway's address and what its clients need, each role's name and address, and where all of it is."""
        names = self._plan.names
        folder = Path(".diphase") / self._stack  # below the project, wherever that is
        files: dict[str, pulumi.Input[str]] = {str(folder / "api_key"): self._key.key}
        own = entry.has_own_certificate(self._plan)
        if own:
            files[str(folder / "ca.crt")] = self._certificates.trusted
        return {
            "gateway": {
                "url": self._url(self._objects["service/gateway"]),
                "apiKeyFile": str(folder / "api_key"),
                "model": self._config.model.name,
                "caFile": str(folder / "ca.crt") if own else None,
            },
            "objectives": self._config.objectives.model_dump(by_alias=True),
            "roles": [{"name": role, "url": f"https://{names.host(role)}:{_port(role)}"} for role in ROLES],
            "namespace": names.namespace,
            "kubeconfig": self._access.file,
            "context": self._access.context,
            "files": pulumi.Output.secret(files),
        }

    def _url(self, service: KubernetesObject) -> pulumi.Input[str]:
        wanted = self._config.kubernetes.entry
        host = wanted.host or next(iter(wanted.addresses), None)
        if wanted.kind != "service" or wanted.service_type == "ClusterIP":
            return f"https://{wanted.host or self._plan.names.host('gateway')}"
        if wanted.service_type == "NodePort":
            return pulumi.Output.concat("https://", host or "", ":", service.spec.apply(_node_port))
        return f"https://{host}" if host else pulumi.Output.concat("https://", self._rollouts.address)


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """Every object of a stack but for its secrets."""
    yield from namespace.manifests(plan)
    yield from network_policy.manifests(plan)
    for role in ROLES:
        yield plan.config_map(role)
    yield from kv.manifests(plan)
    yield from scheduler.manifests(plan)
    yield from workers.manifests(plan)
    yield from gateway.manifests(plan)
    yield from entry.manifests(plan)
    yield from autoscaling.manifests(plan)


def _port(role: Role) -> int:
    return CLIENT_PORT if role == "gateway" else ROLE_PORT


# A preview does not know it yet.
def _node_port(spec: Mapping[str, Any]) -> str:
    port = spec["ports"][0].get("nodePort")
    return str(int(port)) if port else ""  # numbers come back as floats
