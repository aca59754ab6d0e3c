"""The Pulumi program: read the stack's configuration, pick the target, export the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pulumi

from infra.config import StackConfig
from infra.kubernetes.stack import KubernetesStack
from infra.local.stack import LocalStack

TARGETS: Mapping[str, type[LocalStack | KubernetesStack]] = {"local": LocalStack, "kubernetes": KubernetesStack}


def main(project: Path | None = None) -> None:
    """Declare the resources of the stack that Pulumi runs; a wrong configuration raises before the first of them.

    `project` is the folder with Pulumi.yaml, for an inline program, which Pulumi does not tell it to.
    """
    config = StackConfig.load()
    stack = TARGETS[config.target](config, project or Path(pulumi.get_root_directory()), pulumi.get_stack())
    for name, value in stack.outputs.items():
        pulumi.export(name, value)


if __name__ == "__main__":
    main()
