"""`diphase up`: make the stack as its configuration says, and wait until it is ready."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import config_option, stack_option
from scripts.releases.folder import Releases
from scripts.releases.history import mark
from scripts.releases.record import compose, parse
from scripts.releases.source import describe, warning


@click.command("up")
@stack_option
@config_option
@click.option("--message", "-m", default="", help="What this update is for; the commit's title when absent.")
def command(stack: str, config_file: Path | None, message: str) -> None:
    """Stand the stack up, or change it to what its configuration says now."""
    engine = Engine(stack, config_file=config_file)
    _, record = parse(message)
    if record is None:
        title, record = describe(message)
        message = compose(title, record)
        if warned := warning(record):
            click.echo(f"warning: {warned}", err=True)
    # What this machine lost since (a restart, say) is found by looking first.
    try:
        engine.run("up", f"stack {stack}: up", begun=mark(engine, record), refresh=True, message=message)
    except OperationFailed as failed:
        raise OperationFailed("\n".join(filter(None, [failed.message, engine.target.explain()]))) from None
    Releases(engine.project, engine.cache).prune()
    outputs = engine.outputs(secrets=True)
    engine.target.keep(outputs)
    for name, value in _told(stack, outputs).items():
        click.echo(f"{name:8} {value}")


def _told(stack: str, outputs: Mapping[str, Any]) -> dict[str, object]:
    """What somebody who wants to talk to the stack needs to know."""
    if "gateway" not in outputs:
        # Of a region that has no images yet, which its registry holds.
        region = outputs["region"]
        here = f"{region['name']} of account {region['account']}, cluster {region['cluster']}"
        return {"region": here, "registry": region["registry"], "next": f"diphase images push --stack {stack}"}
    gateway = outputs["gateway"]
    told: dict[str, object] = {"gateway": gateway["url"], "key": _shown(gateway["apiKeyFile"])}
    told["model"] = gateway["model"]
    return told | ({"CA": _shown(gateway["caFile"])} if gateway.get("caFile") else {})


def _shown(path: str) -> Path:
    """A file's path as seen from here."""
    here, whole = Path.cwd(), Path(path)
    return whole.relative_to(here) if whole.is_relative_to(here) else whole
