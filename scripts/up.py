"""`diphase up`: make the stack as its configuration says, and wait until it is ready."""

from __future__ import annotations

from pathlib import Path

import click

from scripts.engine import Engine
from scripts.options import stack_option


@click.command("up")
@stack_option
def command(stack: str) -> None:
    """Stand the stack up, or change it to what its configuration says now."""
    engine = Engine(stack)
    # What this machine lost since (a restart, say) is found by looking first.
    engine.run("up", f"stack {stack}: up", refresh=True)
    gateway = engine.outputs()["gateway"]
    key = Path(gateway["apiKeyFile"])
    shown = key.relative_to(Path.cwd()) if key.is_relative_to(Path.cwd()) else key
    click.echo(f"gateway  {gateway['url']}\nkey      {shown}\nmodel    {gateway['model']}")
