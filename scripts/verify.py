"""`diphase verify`: prove that a stack works, as a client would find out; say what to do where it does not."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import stack_option
from scripts.verification.facts import Facts, Objectives
from scripts.verification.finding import Finding
from scripts.verification.gather import gather
from scripts.verification.judges import judge

MARKS = {"ok": "[green]ok[/]", "notice": "[yellow]notice[/]", "failed": "[red]failed[/]"}
IMPOSSIBLE = 2
PIPED_WIDTH = 140  # columns of the table where there is no terminal


@click.command("verify")
@stack_option
@click.option("--json", "as_json", is_flag=True, help="For machines: {stack, verdict, seconds, findings, facts}.")
@click.option(
    "--ttft",
    type=click.FloatRange(min=0, min_open=True),
    help="Objective: seconds to the first token, of prompts up to 512 tokens.",
)
@click.option("--rate", type=click.FloatRange(min=0), help="Objective: decode tokens per second of one answer.")
@click.option("--timeout", default=120.0, show_default=True, type=click.FloatRange(min=0.1), help="Of each answer, s.")
def command(stack: str, as_json: bool, ttft: float | None, rate: float | None, timeout: float) -> None:
    """Try the stack: roles, prompts, streams, speed, KV handoff, refusals.

    Exit status: 0 it works, 1 something failed, 2 it could not be tried.
    """
    began = time.monotonic()
    terminal = Console(stderr=True)
    try:
        engine = Engine(stack)
        outputs = engine.outputs()
        with engine.target.reach(outputs) as tried, terminal.status("") as status:
            facts = asyncio.run(gather(tried, timeout, lambda what: status.update(f"trying: {what}")))
    except OperationFailed as error:
        if as_json:
            click.echo(msgspec.json.encode({"stack": stack, "verdict": "impossible", "reason": error.message}))
        else:
            error.show()
        sys.exit(IMPOSSIBLE)
    findings = judge(facts, objectives_of(outputs, ttft, rate))
    failed = any(finding.verdict == "failed" for finding in findings)
    seconds = time.monotonic() - began
    if as_json:
        click.echo(as_document(facts, findings, failed, seconds))
    else:
        show(findings, failed, seconds, stack)
    sys.exit(1 if failed else 0)


def objectives_of(outputs: Mapping[str, Any], ttft: float | None, rate: float | None) -> Objectives:
    """The options, else what the stack exports as `objectives`, else the defaults."""
    exported, default = outputs.get("objectives", {}), Objectives()
    return Objectives(
        exported.get("ttftSeconds", default.ttft_seconds) if ttft is None else ttft,
        exported.get("ttftTokens", default.ttft_tokens),
        exported.get("decodeTokensPerSecond", default.decode_tokens_per_second) if rate is None else rate,
    )


def as_document(facts: Facts, findings: list[Finding], failed: bool, seconds: float) -> str:
    """For machines: the findings, and the facts they were judged from."""
    document = {
        "stack": facts.stack,
        "verdict": "failed" if failed else "ok",
        "seconds": round(seconds, 3),
        "findings": findings,
        "facts": facts,
    }
    return msgspec.json.encode(document).decode()


def show(findings: list[Finding], failed: bool, seconds: float, stack: str) -> None:
    """For people."""
    table = Table("check", "", "found", box=None, pad_edge=False)
    for finding in findings:
        table.add_row(escape(finding.check), MARKS[finding.verdict], escape(finding.found))
        if finding.advice:
            table.add_row("", "", f"[dim]→ {escape(finding.advice)}[/]")
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(table)
    number = sum(finding.verdict == "failed" for finding in findings)
    verdict = f"[red]{number} of {len(findings)} checks failed[/]" if failed else "[green]it works[/]"
    console.print(f"stack {stack}: {verdict} ({seconds:.0f} s)")
