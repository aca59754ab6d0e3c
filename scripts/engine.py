"""Drives the Pulumi engine: one stack, one operation, its progress and its faults."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from pulumi import automation

from infra.__main__ import main
from infra.paths import PathError, cache_dir, project_dir
from scripts import pulumi_cli, targets
from scripts.faults import Holder, OperationFailed, holders_in, holders_named, locked, sentence, sentences
from scripts.policies import packs
from scripts.progress import Progress
from scripts.state.address import VARIABLE, Bucket, StackFile, backend

PROJECT = "diphase"
STATE_URL = "file://./.diphase/state"
CALL_SECONDS = 120.0  # of a call that only reads or writes a fact about the stack


class Engine:
    """A stack of the project around the current folder; methods raise OperationFailed.

    `program` declares the stack's resources; it is given the folder with Pulumi.yaml. `config_file` is read instead of
    the stack's own.
    """

    def __init__(self, stack: str, program: Callable[[Path], None] = main, *, config_file: Path | None = None) -> None:
        try:
            self.project = project_dir(os.environ, Path.cwd())
        except PathError as error:
            raise OperationFailed(str(error)) from None
        self.cache = cache_dir(os.environ)
        self.name = stack
        self._program = program
        self.config_file = config_file or self.project / "stacks" / f"Pulumi.{stack}.yaml"
        self._read_instead = {"config_file": str(config_file)} if config_file else {}
        self._packs = packs(self.config_file)
        self._cli = _cli()
        self._environ = {
            "PULUMI_HOME": str(self.cache / "pulumi-home"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_CONFIG_PASSPHRASE": os.environ.get("PULUMI_CONFIG_PASSPHRASE", ""),
            # An inline program passes no runtime options on, so the dynamic provider is told which Python has the SDK.
            "PULUMI_PYTHON_CMD": sys.executable,
        }
        # What Pulumi.yaml says is for stacks of this machine; a region's state lies in a bucket beside it.
        self._backend = backend(self.config_file, os.environ)
        if self._backend:
            self._environ[VARIABLE] = self._backend

    @functools.cached_property
    def target(self) -> targets.Target:
        """What carries the roles."""
        return targets.of(self.name, self.project, self.cache, self.config_file)

    @functools.cached_property
    def _stack(self) -> automation.Stack:
        if not self.config_file.exists():
            raise OperationFailed(f"there is no stack {self.name}: {self.config_file} does not exist")
        if not self._backend:
            # The file backend does not make its own folder.
            (self.project / ".diphase" / "state").mkdir(parents=True, exist_ok=True)
        options = automation.LocalWorkspaceOptions(
            work_dir=str(self.project),
            pulumi_command=self._cli,
            env_vars=self._environ,
            # Told when the stack is made, for without it the CLI takes a passphrase, whatever the file says.
            secrets_provider=StackFile.read(self.config_file).secrets,
        )
        choose = automation.select_stack if self.exists() else automation.create_stack
        with self._faults(None):
            return choose(self.name, PROJECT, lambda: self._program(self.project), opts=options)

    def exists(self) -> bool:
        """Whether the stack has state."""
        if self._in_checkout():
            return (self.project / f".diphase/state/.pulumi/stacks/{PROJECT}/{self.name}.json").exists()
        with self._faults(None):
            done = self._cli.run(["stack", "ls", "--json", "--project", PROJECT], str(self.project), self._environ)
        return any(stack["name"].rpartition("/")[2] == self.name for stack in json.loads(done.stdout))

    def run(self, operation: str, title: str, *, begun: Callable[[], None] = lambda: None, **options: Any) -> Progress:
        """Run `up`, `preview`, `refresh` or `destroy`; gives what it did, or is to do.

        `begun` is called beside it, once the operation holds the stack.
        """
        if operation in ("up", "preview"):
            options = {"policy_packs": self._packs, **options, **self._read_instead}
        if operation == "up" and self._packs:
            # A rule that looks at several resources is asked when all are declared: in an `up`, when all are made.
            self.run("preview", f"stack {self.name}: rules")
        stack = self._stack
        method: Callable[..., Any] = getattr(stack, operation)
        progress = Progress(title, planned=operation == "preview", begun=begun)
        with progress, self._deferred_interrupt(progress), self._faults(progress):
            method(on_event=progress.on_event, **options)
        return progress

    def pulumi(self, *arguments: str, text: str = "") -> str:
        """What `pulumi ARGUMENTS --stack NAME` prints; `text` is its standard input. The stack must exist."""
        root = Path(sys.prefix) / pulumi_cli.ROOT
        command = [str(root / "bin" / "pulumi"), "--non-interactive", *arguments, "--stack", self.name]
        environ = {**os.environ, **self._environ}
        try:
            done = subprocess.run(
                command, cwd=self.project, env=environ, input=text, capture_output=True, text=True, timeout=CALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise OperationFailed(f"`pulumi {arguments[0]}` has not ended within {CALL_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise OperationFailed(sentence(done.stderr or done.stdout))
        return done.stdout

    def _in_checkout(self) -> bool:
        """Whether the state is in the checkout's own folder, where looking costs nothing."""
        if self._backend:
            return False
        return STATE_URL in (self.project / "Pulumi.yaml").read_text()

    def outputs(self, *, secrets: bool = False) -> dict[str, Any]:
        """What the stack exports; empty where it is not up. Secrets are hidden unless they are asked for."""
        if not self.exists():
            return {}
        with self._faults(None):
            arguments = ["stack", "output", "--json", "--stack", self.name, *["--show-secrets"] * secrets]
            done = self._cli.run(arguments, str(self.project), self._environ)
        found: dict[str, Any] = json.loads(done.stdout or "{}")
        return found

    def configure(self, values: Mapping[str, str]) -> None:
        """Set keys of the stack's configuration, such as `images.registry`, in its file."""
        pairs = [part for key, value in values.items() for part in ("--plaintext", f"{PROJECT}:{key}={value}")]
        assert self._stack is not None  # made where it does not exist yet
        # By the CLI, which keeps the rest of the file as it is.
        self.pulumi("config", "set-all", "--path", *pairs)

    def locked(self) -> str | None:
        """Who holds the stack and what to do, as far as that can be seen beforehand; None where nobody is seen."""
        holders = self.holders()
        return locked(holders, self.name) if holders else None

    def holders(self) -> list[Holder] | None:
        """Who holds the stack, of a state in the checkout or in S3; None for backends that only the CLI can ask."""
        if self._in_checkout():
            return holders_in(self.project, PROJECT, self.name)
        bucket = Bucket.of(self._backend or "")
        if bucket is None:
            return None
        from scripts.state import locks  # boto3, which a stack of this machine does without

        return locks.holders(bucket, PROJECT, self.name)

    def cancel(self) -> None:
        """Take away the lock of an operation that is dead."""
        with self._faults(None):
            self._stack.cancel()

    @contextmanager
    def _faults(self, progress: Progress | None) -> Iterator[None]:
        try:
            yield
        except automation.ConcurrentUpdateError as error:
            raise OperationFailed(locked(holders_named(str(error)), self.name)) from None
        except automation.CommandError as error:
            said = sentences(progress.errors) if progress else ""
            raise OperationFailed(said or sentence(str(error))) from None

    @contextmanager
    def _deferred_interrupt(self, progress: Progress) -> Iterator[None]:
        """The first ^C reaches the engine, which ends the steps in progress and saves its state; the next ends all."""
        self.target.interrupt(False)
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard = False

        def interrupted(_number: int, _frame: FrameType | None) -> None:
            nonlocal heard
            if heard:
                raise KeyboardInterrupt
            heard = True
            # The engine waits for a step's end, and a step may be waiting for a role.
            self.target.interrupt(True)
            progress.say("interrupted: steps in progress are ended first; again to stop at once")

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        except OperationFailed:
            if heard:
                raise click.Abort from None
            raise
        finally:
            signal.signal(signal.SIGINT, before)
            self.target.interrupt(False)


def _cli() -> automation.PulumiCommand:
    root = Path(sys.prefix) / pulumi_cli.ROOT
    if not pulumi_cli.complete(root / "bin"):
        raise OperationFailed("the Pulumi CLI is not set up: run `make set-up`")
    return automation.PulumiCommand(root=str(root))
