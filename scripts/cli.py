"""The `diphase` command: subcommands are loaded when they are called, so that none pays for what another imports."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import click

COMMANDS = (
    "up",
    "preview",
    "refresh",
    "down",
    "status",
    "verify",
    "history",
    "rollback",
    "images",
    "cancel",
    "backend",
    "preflight",
    "capacity",
    "cost",
    "cluster-token",
)


class Lazy(click.Group):
    """A group whose command `some-name` is the function `command` of the module scripts.some_name."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(_module(name))]

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(_context):
            return None
        command: click.Command = importlib.import_module(_module(name)).command
        return command


def _module(name: str) -> str:
    return f"scripts.{name.replace('-', '_')}"


@click.command(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
def diphase() -> None:
    """Inference with prefill and decode apart: stand a stack up, look at it, take it down."""


def main() -> None:
    """Entry point of the console script; a failure is one sentence and exit status 1, an interrupt 130."""
    # What is started here, such as Pulumi's providers and kubectl, may ask for a token by the name `diphase`.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])
    try:
        diphase.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
