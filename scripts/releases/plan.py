"""What a rollback is about to do: from where to where, with which configuration, and what is to be known of it."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.releases import choice, recorded
from scripts.releases.choice import NoChoice
from scripts.releases.history import History, State, load, state
from scripts.releases.record import Record, Rollback, compose, new_attempt
from scripts.releases.repository import GitError, Repository
from scripts.releases.updates import Update

# A commit without it cannot be told which configuration to use.
NEEDED = "scripts/releases/process.py"


@dataclass(frozen=True)
class Plan:
    """`file` is the stack's file of the target's commit, None where it has none."""

    stack: str
    target: Update
    commit: str
    current: Update | None
    history: History
    state: State
    file: str | None
    notes: list[str]

    @property
    def message(self) -> str:
        """The message of the update that a rollback is."""
        # One that was cut off may be in the history all the same: a service keeps it.
        unfinished = self.history.unfinished
        known = self.current and (unfinished is None or self.current.record.attempt == unfinished.attempt)
        origin = self.current.number if self.current and known else None
        record = Record(
            self.commit,
            version=self.target.record.version,
            rollback=Rollback(origin, self.target.number),
            attempt=new_attempt(),
        )
        return compose(f"Rollback to update {self.target.number}: {self.target.title}", record)

    def lines(self) -> list[str]:
        """The plan for people, before the preview."""
        target = self.target
        title = f", {target.title}" if target.title else ""
        lines = [
            f"stack {self.stack}: rollback to update {target.number} of {target.started.astimezone():%Y-%m-%d %H:%M}"
            f" (commit {self.commit[:12]}{title})",
            f"  now: {self._now()}",
        ]
        lines += [f"  note: {note}" for note in self.notes]
        running = self.current.config if self.current and not self.history.unfinished else None
        if running is not None:
            changes = recorded.differences(running, self.target.config)
            lines += ["  configuration that changes:", *(f"    {line}" for line in changes)] if changes else []
        return lines

    def _now(self) -> str:
        unfinished = self.history.unfinished
        if unfinished is not None:
            commit = (unfinished.commit or "unknown")[:12]
            return f"an update to commit {commit}, begun {unfinished.at.astimezone():%Y-%m-%d %H:%M}, has not ended"
        if self.current is None:
            return "nothing"
        commit = (self.current.commit or "unknown")[:12]
        return f"update {self.current.number}, {self.current.kind} {self.current.result}, commit {commit}"


def make(engine: Engine, to: str | None) -> Plan:
    """Choose the target and find out what is to be known; raises OperationFailed where it cannot be gone back to."""
    repository = Repository(engine.project)
    history = load(engine, secrets=True)
    try:
        target = (
            choice.default(history.updates, history.unfinished)
            if to is None
            else choice.named(history.updates, to, repository.commit_of(to))
        )
    except NoChoice as error:
        raise OperationFailed(f"stack {engine.name}: {error}") from None
    current = choice.current(history.updates)
    if history.unfinished is None and current is not None and current.number == target.number:
        raise OperationFailed(
            f"update {target.number} is what stack {engine.name} runs now; `diphase up` mends what is missing of it"
        )
    commit = commit_of(repository, target)
    file = repository.file_at(commit, f"stacks/Pulumi.{engine.name}.yaml")
    found = state(engine)
    notes = _notes(engine.name, target, history, found, file)
    return Plan(engine.name, target, commit, current, history, found, file, notes)


def commit_of(repository: Repository, target: Update) -> str:
    """The target's commit, which is in this clone and can be rolled back to; raises OperationFailed."""
    commit = target.commit
    if commit is None:
        raise OperationFailed(
            f"update {target.number} recorded no commit: it was not made from a git checkout. `diphase history` shows "
            "those that were; `--to` names one"
        )
    try:
        repository.head()
        here = repository.has(commit)
        shallow = repository.shallow()
    except GitError as error:
        raise OperationFailed(f"{repository.folder} is no usable git checkout ({error}): run this in one") from None
    if not here:
        fetch = f"git fetch --depth=1 origin {commit}" if shallow else "git fetch --all"
        kind = "shallow clone" if shallow else "clone"
        raise OperationFailed(f"commit {commit} of update {target.number} is not in this {kind}: `{fetch}`")
    if repository.file_at(commit, NEEDED) is None:
        raise OperationFailed(
            f"commit {commit[:12]} of update {target.number} is older than rollbacks. By hand: `git worktree add "
            f"../back {commit[:12]}`, then `make up` there with the state of this checkout"
        )
    return commit


def _notes(stack: str, target: Update, history: History, found: State, file: str | None) -> list[str]:
    notes = []
    if target.record.dirty_code:
        notes.append(
            f"update {target.number} came from a dirty checkout ({', '.join(target.record.dirty_code)}): "
            "its commit is used without these changes"
        )
    if target.number in choice.bad(history.updates):
        notes.append(f"update {target.number} was itself rolled back from")
    if history.unfinished is not None:
        notes.append(
            f"the update that has not ended runs still, or was cut off; if the stack is found locked and it is dead, "
            f"`diphase cancel --stack {stack}`"
        )
    if found.pending:
        notes.append(f"an update was cut off while it changed {', '.join(found.pending)}")
    if file is None:
        notes.append(f"the commit has no stacks/Pulumi.{stack}.yaml; what the update recorded is used")
    else:
        differs = recorded.differences(recorded.of_file(file), target.config)
        if differs:
            notes.append(
                "the update's configuration, which is used, is not that of the commit's file: " + "; ".join(differs)
            )
    return notes
