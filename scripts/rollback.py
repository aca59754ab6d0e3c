"""`diphase rollback`: bring back what an earlier update was: its commit, its configuration, its images."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.options import stack_option
from scripts.progress import Step
from scripts.releases import guard, plan, process, recorded
from scripts.releases.folder import Release, Releases
from scripts.releases.plan import Plan
from scripts.releases.repository import GitError, Repository


@click.command("rollback")
@stack_option
@click.option("--to", metavar="COMMIT|UPDATE", help="A commit, or a number of `diphase history`.")
@click.option("--allow", multiple=True, metavar="URN|NAME", help="A cluster, data store or key that may be lost.")
@click.option("--preview", "only_preview", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(stack: str, to: str | None, allow: tuple[str, ...], only_preview: bool, yes: bool) -> None:
    """Bring back what an earlier update was; the last good one unless told.

    Shows what would change, asks, brings it up and verifies it.
    """
    engine = Engine(stack)
    if not (yes or only_preview or sys.stdin.isatty()):
        raise OperationFailed("there is no terminal to ask on: add --yes, or look first with --preview")
    if locked := engine.locked():
        raise OperationFailed(locked)
    what = plan.make(engine, to)
    click.echo("\n".join(what.lines()), err=True)
    with _ended_by_signals(), tempfile.TemporaryDirectory(prefix="diphase-rollback-") as scratch:
        config_file = Path(scratch) / f"Pulumi.{stack}.yaml"
        recorded.write(engine, what.target.number, what.target.config, what.state.encryption, config_file)
        with Releases(engine.project, engine.cache).at(what.commit) as release:
            _preview(release, engine, config_file, allow)
            if only_preview:
                return
            if not yes and not click.confirm(f"Roll stack {stack} back?", err=True):
                raise OperationFailed("nothing was changed")
            _up(release, engine, config_file, what)
            _verify(release, engine, what)


def _preview(release: Release, engine: Engine, config_file: Path, allowed: Sequence[str]) -> None:
    """Show what would change; raises OperationFailed where something would be lost that nobody named."""
    arguments = ["preview", "--stack", engine.name, "--config-file", str(config_file), "--json"]
    status, printed = process.run(release, engine.project, *arguments, capture=True)
    if status != 0:
        raise OperationFailed("the preview failed, and nothing was changed")
    steps = [Step(step["op"], step["urn"], step["type"]) for step in json.loads(printed)["steps"]]
    refused = guard.refused(guard.losses(steps), allowed)
    if refused:
        losses = "\n".join(f"  {loss}: --allow {loss.name}" for loss in refused)
        raise OperationFailed(f"nothing was changed, for this would be lost unless you name it:\n{losses}")


def _up(release: Release, engine: Engine, config_file: Path, what: Plan) -> None:
    arguments = ["up", "--stack", engine.name, "--config-file", str(config_file), "--message", what.message]
    status, _ = process.run(release, engine.project, *arguments)
    if status != 0:
        raise OperationFailed(
            f"the rollback failed and may be half done: mend what is said above and run it again, or go elsewhere "
            f"with `--to` (`diphase history --stack {engine.name}`)"
        )


def _verify(release: Release, engine: Engine, what: Plan) -> None:
    status, _ = process.run(release, engine.project, "verify", "--stack", engine.name)
    if status != 0:
        raise OperationFailed(
            f"stack {engine.name} is rolled back to update {what.target.number}, but `diphase verify` is not content: "
            "see above; `diphase rollback --to` goes elsewhere"
        )
    click.echo(f"stack {engine.name} is what update {what.target.number} was, and works", err=True)
    try:
        head = Repository(engine.project).head()
    except GitError:
        return
    if head != what.commit:
        click.echo(
            f"This checkout is at {head[:12]}: `diphase up` here would deploy that again. Revert first.", err=True
        )


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """What ends the program unwinds it: temporary files and worktrees go on every path."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with process.handling(end, *process.ENDING):
        yield
