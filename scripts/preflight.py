"""`diphase preflight`: what an `up` of a region would fail of, found before anything is made."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import boto3
import click
import msgspec
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from infra.config import NAMESPACE, ConfigError, StackConfig
from infra.paths import PathError, project_dir
from scripts.faults import OperationFailed
from scripts.options import config_option, stack_option
from scripts.preflight_checks import run
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted
from scripts.state.address import backend

MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "fault": "[red]fault[/]"}
PIPED_WIDTH = 160  # columns of the table where there is no terminal


@click.command("preflight")
@stack_option
@config_option
@click.option("--json", "as_json", is_flag=True, help="For machines: {stack, verdict, findings}.")
def command(stack: str, config_file: Path | None, as_json: bool) -> None:
    """Look whether a region can be made as its stack says; changes nothing.

    Exit status: 0 it can, 1 there is a fault.
    """
    wanted = _wanted(stack, config_file)
    cloud = Cloud(boto3.Session(region_name=wanted.region), wanted.region, wanted.config.region.deploy_role)
    try:
        with Console(stderr=True).status("") as status:
            findings = run(cloud, wanted, tell=lambda what: status.update(f"looking at {what}"))
    finally:
        cloud.close()
    faults = sum(finding.verdict == "fault" for finding in findings)
    if as_json:
        document = {"stack": stack, "verdict": "fault" if faults else "ok", "findings": findings}
        click.echo(msgspec.json.encode(document).decode())
    else:
        _show(findings, faults, stack)
    sys.exit(1 if faults else 0)


def _wanted(stack: str, config_file: Path | None) -> Wanted:
    """What the stack's file wants; raises OperationFailed where that is no region."""
    try:
        file = config_file or project_dir(os.environ, Path.cwd()) / "stacks" / f"Pulumi.{stack}.yaml"
        values = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("config") or {}
        config = StackConfig.parse({key.removeprefix(f"{NAMESPACE}:"): value for key, value in values.items()})
    except FileNotFoundError:
        raise OperationFailed(f"there is no stack {stack}: {file} does not exist") from None
    except (OSError, ValueError, yaml.YAMLError, AttributeError) as error:
        raise OperationFailed(f"{file} cannot be read: {error}") from None
    except (PathError, ConfigError) as error:
        raise OperationFailed(str(error)) from None
    if config.target != "aws":
        raise OperationFailed(f"stack {stack} is of target {config.target}; preflight is for regions, of target aws")
    return Wanted(stack, config, backend(file, os.environ))


def _show(findings: list[Finding], faults: int, stack: str) -> None:
    table = Table("check", "", "found", box=None, pad_edge=False)
    for finding in findings:
        table.add_row(escape(finding.check), MARKS[finding.verdict], escape(finding.found))
        if finding.advice:
            table.add_row("", "", f"[dim]→ {escape(finding.advice)}[/]")
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(table)
    verdict = (
        f"[red]{faults} of {len(findings)} findings are faults[/]" if faults else "[green]nothing is in the way[/]"
    )
    console.print(f"stack {stack}: {verdict}")
