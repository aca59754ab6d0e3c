"""`diphase status`: each role's process and whether it is ready."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from infra.local.health import ready
from infra.local.supervisord import LocalError, Supervisord
from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import stack_option


@click.command("status")
@stack_option
@click.option("--json", "as_json", is_flag=True, help="For machines: {gateway: {url, api_key_file}, roles: […]}.")
def command(stack: str, as_json: bool) -> None:
    """Show the gateway's address and every role; status 1 where the stack is not up."""
    outputs = Engine(stack).outputs()
    if "gateway" not in outputs:
        raise OperationFailed(f"stack {stack} is not up: run `diphase up --stack {stack}`")
    gateway = {"url": outputs["gateway"]["url"], "api_key_file": outputs["gateway"]["apiKeyFile"]}
    with ThreadPoolExecutor(max_workers=16) as pool:
        roles = list(pool.map(lambda role: _role(Path(outputs["run"]), role), outputs["roles"]))
    if as_json:
        click.echo(
            json.dumps({"gateway": gateway, "roles": [{k: v for k, v in r.items() if k != "state"} for r in roles]})
        )
        return
    table = Table("role", "pid", "address", "state", "ready", box=None)
    for role in roles:
        table.add_row(
            role["name"], str(role["pid"] or "-"), role["url"], role["state"], "yes" if role["ready"] else "no"
        )
    Console().print(f"gateway {gateway['url']}, its key in {gateway['api_key_file']}", table, sep="\n")


def _role(run: Path, role: dict[str, Any]) -> dict[str, Any]:
    try:
        info = Supervisord(run).info(role["name"])
    except LocalError:
        info = None
    pid = (info["pid"] or None) if info else None
    state = info["statename"].lower() if info else "absent"
    return {
        "name": role["name"],
        "pid": pid,
        "url": role["url"],
        "ready": bool(pid) and ready(role["url"]),
        "state": state,
    }
