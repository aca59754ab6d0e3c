"""`diphase cancel`: take away the lock that a dead operation left."""

from __future__ import annotations

import sys

import click

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import stack_option


@click.command("cancel")
@stack_option
@click.option("--yes", is_flag=True, help="Do not ask, although the operation may still run.")
def command(stack: str, yes: bool) -> None:
    """Unlock a stack whose operation has died. Never do this while one still runs.

    Shows who holds it, and asks unless that process is known to be dead.
    """
    engine = Engine(stack)
    holders = engine.holders()
    if holders == []:
        click.echo(f"stack {stack} is not locked", err=True)
        return
    who = "; ".join(map(str, holders or ())) or "somebody whom this backend does not name"
    click.echo(f"stack {stack} is locked by {who}", err=True)
    dead = bool(holders) and all(holder.gone for holder in holders or ())
    if not (dead or yes):
        if not sys.stdin.isatty():
            raise OperationFailed(
                "nothing was changed, for that operation may still run and there is no terminal to ask on: see that it "
                "is dead, then add --yes"
            )
        if not click.confirm("Is that operation dead? Unlocking while it runs corrupts the state. Unlock?", err=True):
            raise OperationFailed("nothing was changed")
    engine.cancel()
    click.echo(f"stack {stack} is unlocked", err=True)
