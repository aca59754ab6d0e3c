"""`diphase preview`: what `up` would change."""

from __future__ import annotations

import json
from pathlib import Path

import click

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import config_option, stack_option


@click.command("preview")
@stack_option
@config_option
@click.option("--expect-no-changes", is_flag=True, help="Exit with status 1 where something would change.")
@click.option("--json", "as_json", is_flag=True, help="For machines: {changes: {…}, steps: [{op, urn, type}]}.")
def command(stack: str, config_file: Path | None, expect_no_changes: bool, as_json: bool) -> None:
    """Show what `up` would change, and change nothing."""
    seen = Engine(stack, config_file=config_file).run("preview", f"stack {stack}: preview", refresh=True)
    if as_json:
        click.echo(json.dumps({"changes": seen.changes, "steps": [step._asdict() for step in seen.steps]}))
    changed = {kind: number for kind, number in seen.changes.items() if kind != "same"}
    if expect_no_changes and changed:
        counts = ", ".join(f"{number} to {kind}" for kind, number in sorted(changed.items()))
        raise OperationFailed(f"no changes were expected, but there are {counts}")
