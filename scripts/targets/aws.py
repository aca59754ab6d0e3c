"""The aws target: pods of a cluster that the stack makes itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.paths import cluster_file
from scripts.faults import OperationFailed
from scripts.kubectl import Kubectl
from scripts.targets.kubernetes import KubernetesTarget
from scripts.targets.target import RoleState


class AwsTarget(KubernetesTarget):
    """A stack whose roles are pods of its own cluster, once it has both; a region alone serves nothing yet."""

    @functools.cached_property
    def _kubectl(self) -> Kubectl:
        file = self._project / cluster_file(self._stack)
        if not file.is_file():
            raise OperationFailed(
                f"how to reach the cluster is not in {file}: run `diphase up --stack {self._stack}`, which writes it"
            )
        return Kubectl(str(file), self._stack, self._namespace)

    @property
    def _inside(self) -> bool:
        return self._config.edge.host is None

    def explain(self) -> str:
        """Of an `up` that failed before there was a cluster the fault has said everything."""
        return super().explain() if (self._project / cluster_file(self._stack)).is_file() else ""

    def roles(self, outputs: Mapping[str, Any]) -> list[RoleState]:
        return super().roles(outputs) if "gateway" in outputs else []

    def _files(self) -> list[Path]:
        return [*super()._files(), self._project / cluster_file(self._stack)]
