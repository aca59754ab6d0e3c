"""How a cluster is reached: one that exists, by a file of this machine; one that the stack makes, by what it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import pulumi

from infra.config.kubernetes import Kubernetes


@dataclass(frozen=True)
class Access:
    """`kubeconfig` is a file's path or its content, `file` where commands look for it, `identifier` changes when it is
    another cluster. `depends_on` must be there before the first object: nodes, add-ons, roles of pods.
    """

    kubeconfig: pulumi.Input[str]
    file: str
    context: pulumi.Input[str | None]
    identifier: pulumi.Input[str | None]
    depends_on: Sequence[pulumi.Resource] = ()

    @classmethod
    def of(cls, config: Kubernetes) -> Access:
        """Of a cluster that exists."""
        return cls(config.kubeconfig, config.kubeconfig, config.context, config.cluster_identifier or config.context)


@contextmanager
def kubeconfig_file(kubeconfig: str) -> Iterator[Path]:
    """A file with a kubeconfig given as path or content; only its owner may read it."""
    if "\n" not in kubeconfig and not kubeconfig.startswith("{"):
        yield Path(kubeconfig).expanduser()
        return
    with NamedTemporaryFile("w", prefix="kubeconfig-") as handle:
        handle.write(kubeconfig)
        handle.flush()
        yield Path(handle.name)
