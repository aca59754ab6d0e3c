"""What the subcommands need to know of a target, one module for each; `of` chooses by the stack's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from infra.config import NAMESPACE
from scripts.faults import OperationFailed
from scripts.targets.aws import AwsTarget
from scripts.targets.kubernetes import KubernetesTarget
from scripts.targets.local import LocalTarget
from scripts.targets.target import RoleState, Target

__all__ = ["RoleState", "Target", "of"]

CLUSTERS: Mapping[str, type[KubernetesTarget]] = {"kubernetes": KubernetesTarget, "aws": AwsTarget}


def of(stack: str, project: Path, cache: Path, config_file: Path) -> Target:
    """The target that a stack's file names; local where it has no file, as for one that is only to be taken down.

    Raises OperationFailed where the file is wrong, or the target cannot be used with this stack.
    """
    try:
        config = (yaml.safe_load(config_file.read_text()) or {}).get("config") or {}
    except FileNotFoundError:
        config = {}
    except (OSError, ValueError, yaml.YAMLError, AttributeError) as error:
        raise OperationFailed(f"{config_file} cannot be read: {error}") from None
    prefix = f"{NAMESPACE}:"
    values = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    if values.get("target") in CLUSTERS:
        return CLUSTERS[values["target"]](stack, project, values)
    return LocalTarget(stack, project, cache)
