"""`diphase status`: each role's process or pod, and whether it is ready."""

from __future__ import annotations

import json
import sys

import click
from rich.console import Console
from rich.table import Table

from scripts.engine import Engine
from scripts.options import stack_option
from scripts.targets import RoleState
from scripts.targets.client import gateway_of

PIPED_WIDTH = 160  # columns of the table where there is no terminal


@click.command("status")
@stack_option
@click.option("--json", "as_json", is_flag=True, help="For machines: {gateway: {url, api_key_file}, roles: […]}.")
def command(stack: str, as_json: bool) -> None:
    """Show the gateway's address and every role; status 1 where the stack is not up."""
    engine = Engine(stack)
    outputs = engine.outputs()
    found = gateway_of(stack, outputs)
    gateway = {"url": found["url"], "api_key_file": found["apiKeyFile"]}
    roles = engine.target.roles(outputs)
    if as_json:
        click.echo(json.dumps({"gateway": gateway, "roles": [_row(role) for role in roles]}))
        return
    carriers = list(dict.fromkeys(name for role in roles for name in role.where))
    table = Table("role", *carriers, "address", "state", "ready", box=None)
    for role in roles:
        carried = [str(role.where.get(name) or "-") for name in carriers]
        table.add_row(role.name, *carried, role.url, role.state, "yes" if role.ready else "no")
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(f"gateway {gateway['url']}, its key in {gateway['api_key_file']}", table, sep="\n")


def _row(role: RoleState) -> dict[str, object]:
    return {"name": role.name, **role.where, "url": role.url, "ready": role.ready}
