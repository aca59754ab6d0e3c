"""`diphase down`: end every role of the stack and remove what it made."""

from __future__ import annotations

import click

from scripts.engine import Engine
from scripts.options import stack_option
from scripts.releases.folder import Releases


@click.command("down")
@stack_option
def command(stack: str) -> None:
    """Drain the roles, end them, and remove the stack's resources. Logs stay in .diphase."""
    engine = Engine(stack)
    if engine.exists():
        engine.run("destroy", f"stack {stack}: down")
    engine.target.clean()
    Releases(engine.project, engine.cache).prune()
    if not engine.exists():
        click.echo(f"stack {stack} is not up", err=True)
