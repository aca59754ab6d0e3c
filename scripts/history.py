"""`diphase history`: what a stack's updates were, to choose one to go back to."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scripts.engine import Engine
from scripts.options import stack_option
from scripts.releases import choice
from scripts.releases.attempt import Attempt
from scripts.releases.history import History, load
from scripts.releases.updates import SUCCEEDED, Update

SIGNS = {"create": "+", "update": "~", "replace": "±", "delete": "-"}
KINDS = {"update": "up", "destroy": "down"}
HIDDEN = "[secret]"
PIPED_WIDTH = 160  # columns of the table where there is no terminal


@click.command("history")
@stack_option
@click.option("--json", "as_json", is_flag=True, help="For machines: a list, newest first, configuration included.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many are shown.")
def command(stack: str, as_json: bool, limit: int) -> None:
    """List the updates of a stack, newest first: number, time, result, commit, what changed."""
    history = load(Engine(stack))
    if as_json:
        click.echo(msgspec.json.encode(_rows(history)[:limit]))
    elif not history.updates and not history.unfinished:
        click.echo(f"stack {stack} has never been up", err=True)
    else:
        _show(history, limit)


def _rows(history: History) -> list[dict[str, Any]]:
    """For machines. `good` is what a rollback may choose by itself, `current` what made the stack what it is."""
    good = {update.number for update in choice.good(history.updates)}
    current = choice.current(history.updates)
    rows = [_row(update, update.number in good) for update in reversed(history.updates)]
    if history.unfinished:
        rows.insert(0, _unfinished(history.unfinished))
    for row in rows:
        row["current"] = row["update"] == (None if history.unfinished else current and current.number)
    return rows


def _row(update: Update, good: bool) -> dict[str, Any]:
    record = update.record
    return {
        "update": update.number,
        "kind": KINDS.get(update.kind, update.kind),
        "result": update.result,
        "started": update.started,
        "ended": update.ended,
        "title": update.title,
        "commit": record.commit,
        "dirty": list(record.dirty),
        "version": record.version,
        "images": update.images,
        "rollback": record.rollback,
        "changes": update.changes,
        "good": good,
        "config": {key: HIDDEN if value.secret else value.value for key, value in update.config.items()},
    }


def _unfinished(attempt: Attempt) -> dict[str, Any]:
    return {
        "update": None,
        "kind": "up",
        "result": "unfinished",
        "started": attempt.at,
        "commit": attempt.commit,
        "dirty": attempt.dirty,
        "good": False,
    }


def _show(history: History, limit: int) -> None:
    table = Table("", "update", "when", "what", "result", "commit", "changed", "", box=None, pad_edge=False)
    for row in _rows(history)[:limit]:
        commit = (row["commit"] or "-")[:12] + (" dirty" if row["dirty"] else "")
        result = row["result"]
        table.add_row(
            "→" if row["current"] else "",
            str(row["update"] or "-"),
            f"{row['started'].astimezone():%Y-%m-%d %H:%M:%S}",
            row["kind"],
            result if result == SUCCEEDED else f"[red]{escape(result)}[/]",
            commit,
            " ".join(f"{SIGNS[kind]}{n}" for kind, n in row.get("changes", {}).items() if kind in SIGNS) or "nothing",
            escape(_note(row)),
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    console.print(table)


def _note(row: dict[str, Any]) -> str:
    if row["result"] == "unfinished":
        return "it runs still, or was cut off"
    if row["rollback"]:
        origin = row["rollback"].origin
        return f"rollback {f'from {origin} ' if origin else ''}to {row['rollback'].target}"
    bad = " (rolled back from)" if row["kind"] == "up" and row["result"] == SUCCEEDED and not row["good"] else ""
    return f"{row['title']}{bad}"
