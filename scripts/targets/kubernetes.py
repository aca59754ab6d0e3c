"""The kubernetes target: pods of a namespace."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.config import ConfigError, StackConfig
from infra.kubernetes.names import CLIENT_PORT, PROBE_PORT, ROLE_PORT, Names
from scripts.faults import OperationFailed
from scripts.kubectl import Kubectl
from scripts.targets import pods
from scripts.targets.client import client
from scripts.targets.target import RoleState
from scripts.verification.gather import Target as Tried

LOG_LINES = 12
SHOWN = 3  # pods whose logs are shown; the others of a bad release say the same


class KubernetesTarget:
    """A stack whose roles are pods."""

    def __init__(self, stack: str, project: Path, values: Mapping[str, Any]) -> None:
        self._stack, self._project, self._values = stack, project, values
        self._selector = f"app.kubernetes.io/instance={stack},app.kubernetes.io/name=diphase"

    @functools.cached_property
    def _config(self) -> StackConfig:
        # Only what asks the cluster needs it: `down` and `cancel` work with a configuration that is wrong by now.
        try:
            return StackConfig.parse(self._values)
        except ConfigError as wrong:
            raise OperationFailed(str(wrong)) from None

    @functools.cached_property
    def _kubectl(self) -> Kubectl:
        config = self._config.kubernetes
        assert config.context is not None  # infra.config.rules has asked for it
        return Kubectl(config.kubeconfig, config.context, self._namespace)

    @property
    def _namespace(self) -> str:
        return Names.of(self._stack, self._config.kubernetes.namespace).namespace

    @property
    def _inside(self) -> bool:
        """Whether only the cluster reaches the gateway."""
        entry = self._config.kubernetes.entry
        return entry.kind == "service" and entry.service_type == "ClusterIP"

    def interrupt(self, heard: bool) -> None:
        pass  # the provider gives up waiting by itself

    def explain(self) -> str:
        """The pods that are not ready, newest first, and the ends of their logs."""
        try:
            _ = self._config
        except OperationFailed:
            return ""  # which is what the fault says
        try:
            unwell = list(pods.unwell(self._pods()))
            refused = list(pods.refused(self._kubectl.items("deployments", self._selector)))
        except OperationFailed as failed:
            return f"the cluster does not say how the pods are: {failed.message}"
        # One pod of each role first: several of one role have the same fault.
        first = {one.pod.rpartition("-")[0]: one for one in reversed(unwell)}
        shown = [one for one in unwell if first[one.pod.rpartition("-")[0]] is one][:SHOWN]
        more = [f"{len(unwell) - len(shown)} more pods are not ready"] * (len(unwell) > len(shown))
        return "\n".join([*refused, *map(self._told, shown), *more])

    def clean(self) -> None:
        for path in self._files():
            path.unlink(missing_ok=True)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Key and CA certificate come with the state, so that everybody who may deploy has them."""
        for name, content in outputs["files"].items():
            path = self._project / name
            if not path.is_file() or path.read_text() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:
                    handle.write(content)

    def roles(self, _outputs: Mapping[str, Any]) -> list[RoleState]:
        return [
            RoleState(
                pod["metadata"]["name"],
                {"node": pod["spec"].get("nodeName")},
                f"https://{pod['status'].get('podIP', '-')}:{ROLE_PORT}",
                pods.state(pod),
                pods.ready(pod),
            )
            for pod in sorted(self._pods(), key=lambda one: str(one["metadata"]["name"]))
        ]

    @contextmanager
    def reach(self, outputs: Mapping[str, Any]) -> Iterator[Tried]:
        """Roles through the API server, for their ports are shut to everybody else; the gateway as clients do.

        An entry that only the cluster reaches is reached by a port forwarded to it.
        """
        with ExitStack() as held:
            address = held.enter_context(self._kubectl.proxy(PROBE_PORT))
            names = [str(pod["metadata"]["name"]) for pod in self._pods() if not pods.leaving(pod)]
            roles = [(name, f"{address}{name}:{PROBE_PORT}/proxy") for name in sorted(names)]
            tried = client(self._stack, self._project, outputs, roles)._replace(way=address)
            if self._inside:
                port = held.enter_context(self._kubectl.forward("service/gateway", CLIENT_PORT))
                tried = tried._replace(gateway=urlsplit(tried.gateway)._replace(netloc=f"localhost:{port}").geturl())
            yield tried

    def _pods(self) -> list[dict[str, Any]]:
        return self._kubectl.items("pods", self._selector)

    def _told(self, one: pods.Unwell) -> str:
        said = f"{one.pod}: {one.why}"
        if one.container is None:
            return said
        arguments = ["logs", one.pod, f"--container={one.container}", f"--tail={LOG_LINES}"]
        try:
            lines = self._kubectl.run(*arguments, *["--previous"] * one.previous).rstrip()
        except OperationFailed as failed:
            return f"{said}. Its log is not to be had: {failed.message}"
        return f"{said}. Its log ends with:\n{lines}" if lines else f"{said}. Its log is empty"

    def _files(self) -> list[Path]:
        folder = self._project / ".diphase" / self._stack
        return [folder / "api_key", folder / "ca.crt"]
