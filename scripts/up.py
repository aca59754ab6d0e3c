"""`diphase up`: make the stack as its configuration says, and wait until it is ready."""

from __future__ import annotations

from pathlib import Path

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
