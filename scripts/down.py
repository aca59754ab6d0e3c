"""`diphase down`: end every process of the stack and remove what it made."""

from __future__ import annotations

import click

from infra.local.supervisord import LocalError, Supervisord
from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import stack_option

STOP_SECONDS = 60.0


@click.command("down")
@stack_option
def command(stack: str) -> None:
    """Drain the roles, end them, and remove the stack's resources. Logs stay in .diphase."""
    engine = Engine(stack)
    if engine.exists():
        engine.run("destroy", f"stack {stack}: down")
    # Processes that the state does not know of: it was deleted, or an `up` was cut short.
    try:
        Supervisord(engine.paths.run).stop(STOP_SECONDS)
    except LocalError as error:
        raise OperationFailed(str(error)) from None
    if not engine.exists():
        click.echo(f"stack {stack} is not up", err=True)
