"""What the subcommands need to know of a target, one module for each; `of` chooses."""

from __future__ import annotations

from pathlib import Path

from scripts.targets.local import LocalTarget
from scripts.targets.target import RoleState, Target

__all__ = ["RoleState", "Target", "of"]


def of(stack: str, project: Path, cache: Path) -> Target:
    """The target of a stack; raises OperationFailed where it cannot be used with this stack."""
    return LocalTarget(stack, project, cache)
