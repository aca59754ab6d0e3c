"""`diphase cost`: what a region costs a month. Writes docs/cost.md of the example stacks: `python -m scripts.cost`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from infra import cost
from infra.config import NAMESPACE, ConfigError, StackConfig
from infra.cost import Bill
from infra.paths import PathError, project_dir
from scripts.faults import OperationFailed
from scripts.options import config_option, stack_option

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cost.md"
PIPED_WIDTH = 160  # columns of the table where there is no terminal
INTRODUCTION = """\
# What a region costs
<!-- Written by `python -m scripts.cost` from stacks/, infra/prices.py and infra/cost.py; change it there. -->

`diphase cost --stack prod-us-east-1` says what the region of a stack costs a month of 730 hours, line by line, from its
file alone: nothing is asked of AWS and nothing needs to be up. `--json` is for machines. "At most" is with every pool
at its `max`. Prices are those on demand in us-east-1, each with its source in
[infra/prices.py](../infra/prices.py); other regions have their own, and contracts and savings plans lower them.
"""


@click.command("cost")
@stack_option
@config_option
@click.option("--json", "as_json", is_flag=True, help="For machines: {lines: […], usdPerMonth, uncounted: […]}.")
def command(stack: str, config_file: Path | None, as_json: bool) -> None:
    """Say what the region of a stack costs a month."""
    config = read(config_file or _file(stack))
    if config.target != "aws":
        raise OperationFailed(f"stack {stack} is of the {config.target} target, which AWS asks no money for")
    found = cost.bill(config)
    if as_json:
        click.echo(json.dumps(_data(found, config)))
    else:
        _show(found, config)


def read(file: Path) -> StackConfig:
    """The configuration in a stack's file; raises OperationFailed."""
    try:
        values = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("config") or {}
    except FileNotFoundError:
        raise OperationFailed(f"there is no stack file {file}") from None
    except (OSError, ValueError, yaml.YAMLError, AttributeError) as error:
        raise OperationFailed(f"{file} cannot be read: {error}") from None
    prefix = f"{NAMESPACE}:"
    try:
        return StackConfig.parse({k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)})
    except ConfigError as error:
        raise OperationFailed(str(error)) from None


def _file(stack: str) -> Path:
    try:
        return project_dir(os.environ, Path.cwd()) / "stacks" / f"Pulumi.{stack}.yaml"
    except PathError as error:
        raise OperationFailed(str(error)) from None


def _show(found: Bill, config: StackConfig) -> None:
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    table = Table("what", "number", "USD each", "USD a month", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for line in found.lines:
        table.add_row(line.what, _number(line.count, line.most), f"{line.price.usd:,.2f}", f"{line.usd:,.2f}")
    table.add_row("together", "", "", f"{found.usd:,.2f}")
    console.print(table)
    for note in _notes(found, config):
        console.print(note, highlight=False)
    console.print("not counted:", *(f"  {one}" for one in found.uncounted), sep="\n", highlight=False)


def _notes(found: Bill, config: StackConfig) -> Iterator[str]:
    if found.most_usd > found.usd:
        yield f"at most {found.most_usd:,.2f} USD a month, with every pool at its max"
    yield from cost.notes(found, config)


def _number(count: int, most: int) -> str:
    return str(count) if count == most else f"{count} to {most}"


def _data(found: Bill, config: StackConfig) -> dict[str, Any]:
    lines = [
        {
            "what": line.what,
            "count": line.count,
            "most": line.most,
            "usdEach": line.price.usd,
            "usdPerMonth": line.usd,
            "source": line.price.source,
        }
        for line in found.lines
    ]
    return {
        "region": found.region,
        "lines": lines,
        "usdPerMonth": found.usd,
        "mostUsdPerMonth": found.most_usd,
        "notes": list(_notes(found, config)),
        "uncounted": found.uncounted,
    }


def page() -> str:
    """docs/cost.md: a table for each example stack of a region."""
    parts = [INTRODUCTION, "## Not counted\n", "\n".join(f"- {use}" for use in cost.USES), ""]
    for file in sorted((ROOT / "stacks").glob("Pulumi.*.yaml")):
        config = read(file)
        if config.target == "aws":
            parts += _section(file.name.split(".")[1], config)
    return "\n".join(parts)


def _section(stack: str, config: StackConfig) -> Iterator[str]:
    found = cost.bill(config)
    yield f"## {stack}\n\n**{found.usd:,.0f} USD a month**, at most {found.most_usd:,.0f}.\n"
    yield "| What | Number | USD each | USD a month |\n|---|--:|--:|--:|"
    for line in found.lines:
        yield f"| {line.what} | {_number(line.count, line.most)} | {line.price.usd:,.2f} | {line.usd:,.2f} |"
    said = [*cost.notes(found, config), *(one for one in found.uncounted if one not in cost.USES)]
    yield "\n" + "\n".join(f"- {note}" for note in said) + "\n" if said else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
