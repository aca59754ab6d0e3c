"""`diphase cancel`: take away the lock that a dead operation left."""

from __future__ import annotations

import click

from scripts.engine import Engine
from scripts.options import stack_option


@click.command("cancel")
@stack_option
def command(stack: str) -> None:
    """Unlock a stack whose operation has died. Never do this while one still runs."""
    Engine(stack).cancel()
    click.echo(f"stack {stack} is unlocked", err=True)
