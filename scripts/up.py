"""`diphase up`: make the stack as its configuration says, and wait until it is ready."""

from __future__ import annotations

from pathlib import Path

import click

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import stack_option


@click.command("up")
@stack_option
def command(stack: str) -> None:
    """Stand the stack up, or change it to what its configuration says now."""
    engine = Engine(stack)
    # What this machine lost since (a restart, say) is found by looking first.
    try:
        engine.run("up", f"stack {stack}: up", refresh=True)
    except OperationFailed as failed:
        raise OperationFailed("\n".join(filter(None, [failed.message, engine.target.explain()]))) from None
    outputs = engine.outputs(secrets=True)
    engine.target.keep(outputs)
    gateway = outputs["gateway"]
    lines = {"gateway": gateway["url"], "key": gateway["apiKeyFile"], "model": gateway["model"]}
    if gateway.get("caFile"):
        lines["CA"] = gateway["caFile"]
    for name, value in lines.items():
        click.echo(f"{name:8} {_shown(value) if name in ('key', 'CA') else value}")


def _shown(path: str) -> Path:
    """A file's path as seen from here."""
    here, whole = Path.cwd(), Path(path)
    return whole.relative_to(here) if whole.is_relative_to(here) else whole
