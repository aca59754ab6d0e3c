"""`diphase refresh`: take what is really there into the stack's state."""

from __future__ import annotations

import click

from scripts.engine import Engine
from scripts.options import stack_option


@click.command("refresh")
@stack_option
def command(stack: str) -> None:
    """Look at what really runs and write it into the stack's state; `up` mends what is missing."""
    Engine(stack).run("refresh", f"stack {stack}: refresh")
