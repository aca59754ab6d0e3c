"""`diphase preview`: what `up` would change."""

from __future__ import annotations

import click

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import stack_option


@click.command("preview")
@stack_option
@click.option("--expect-no-changes", is_flag=True, help="Exit with status 1 where something would change.")
def command(stack: str, expect_no_changes: bool) -> None:
    """Show what `up` would change, and change nothing."""
    changes = Engine(stack).run("preview", f"stack {stack}: preview", refresh=True)
    changed = {kind: number for kind, number in changes.items() if kind != "same"}
    if expect_no_changes and changed:
        counts = ", ".join(f"{number} to {kind}" for kind, number in sorted(changed.items()))
        raise OperationFailed(f"no changes were expected, but there are {counts}")
