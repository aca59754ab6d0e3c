"""Options that subcommands share."""

from __future__ import annotations

import re

import click

# Also a part of a socket's path and of file names.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")


def _valid(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if not NAME.fullmatch(value):
        raise click.BadParameter("a stack's name has up to 32 letters, digits, '-', '_' and '.'")
    return value


stack_option = click.option("--stack", default="local", show_default=True, callback=_valid, help="Name of the stack.")
