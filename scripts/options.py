"""Options that subcommands share."""

from __future__ import annotations

import re
from pathlib import Path

import click

# Also a part of a socket's path and of file names.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
# What .diphase holds beside a folder for each stack.
TAKEN = ("state", "releases", "images")


def _valid(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not NAME.fullmatch(value):
        raise click.BadParameter("a stack's name has up to 32 letters, digits, '-', '_' and '.'")
    if value in TAKEN:
        raise click.BadParameter(f"{', '.join(TAKEN)} are no names for a stack")
    return value


stack_option = click.option("--stack", default="local", show_default=True, callback=_valid, help="Name of the stack.")
optional_stack_option = click.option("--stack", callback=_valid, help="Name of a stack.")
config_option = click.option(
    "--config-file",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="Read instead of stacks/Pulumi.STACK.yaml.",
)
