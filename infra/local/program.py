"""A role instance as a resource: a program under the stack's supervisord."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, Resource, UpdateResult

from infra.local.health import port_taken, ready
from infra.local.readiness import Watched, await_ready
from infra.local.supervisord import START_SECS, Gone, LocalError, Supervisord
from infra.provider import StackProvider

# SIGKILL follows this long after the drain was to be over.
STOP_MARGIN_SECONDS = 5.0
RUNNING = "RUNNING"
SETTLE_SECONDS = 1.0
# What the program reports, and what a resource of Pulumi's carries beside its inputs.
REPORTED = ("state", "startedAt", "__provider")
# A change of this alone touches no running process.
PASSIVE = ("readySeconds", *REPORTED)


class ProgramProvider(StackProvider):
    """Writes, starts, drains and removes programs."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Start the program and return at once; Readiness waits for all."""
        _start(props)
        return CreateResult(props["instance"], _outputs(props))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """What supervisord runs and its state; no resource where it knows none of that name or is gone itself."""
        state = _state(props)
        if state is None:
            return ReadResult("", {})
        # An update that failed or was killed left a program that Pulumi's state does not know of.
        runs = Supervisord(Path(props["run"])).made_from(id_)
        return ReadResult(id_, {**props, **runs, "state": state})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        moved = _olds.get("run") != _news["run"]
        changed = any(_olds.get(key) != value for key, value in _news.items() if key not in REPORTED)
        return DiffResult(
            changed or _olds.get("state") != RUNNING, ["run"] if moved else [], delete_before_replace=True
        )

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Drain the old program, start the new one and wait until it is ready: the next role is touched only then."""
        same = all(_olds.get(key) == value for key, value in _news.items() if key not in PASSIVE)
        if same and _olds.get("state") == RUNNING:
            return UpdateResult({**_olds, **_news})
        _start(_news, stop_seconds=_olds["stopSeconds"])
        watched = Watched(_news["instance"], _news["url"], Path(_news["log"]))
        await_ready(Supervisord(Path(_news["run"])), [watched], _news["readySeconds"])
        return UpdateResult(_outputs(_news))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        with suppress(Gone):  # it took its programs with it
            Supervisord(Path(_props["run"])).remove(_id, _props["stopSeconds"])


def _state(props: dict[str, Any]) -> str | None:
    """supervisord's word for the program's state; None where there is none.

    One that is starting may be about to end again, so that is waited for unless the role says that it is ready.
    """
    deadline = time.monotonic() + START_SECS + SETTLE_SECONDS
    while True:
        try:
            info = Supervisord(Path(props["run"])).info(props["instance"])
        except Gone:
            return None
        if info is None or info["statename"] != "STARTING":
            return info["statename"] if info else None
        if ready(props["url"]) or time.monotonic() > deadline:
            return RUNNING
        time.sleep(SETTLE_SECONDS / 10)


def _start(props: dict[str, Any], stop_seconds: float | None = None) -> None:
    daemon = Supervisord(Path(props["run"]))
    instance, host, port = props["instance"], props["host"], int(props["port"])
    # One of that name may be left from an `up` that was cut short.
    daemon.remove(instance, props["stopSeconds"] if stop_seconds is None else stop_seconds)
    why = port_taken(host, port)
    if why is not None:
        raise LocalError(
            f"{instance} cannot listen on {host}:{port}: {why}. "
            f"Set diphase:{props['portKey']} to another port, or end that program"
        )
    daemon.put(
        instance,
        list(props["command"]),
        dict(props["environment"]),
        Path(props["directory"]),
        Path(props["log"]),
        props["stopSeconds"],
        {key: value for key, value in props.items() if key not in PASSIVE},
    )


def _outputs(props: dict[str, Any]) -> dict[str, Any]:
    # `startedAt` makes Readiness wait again for a program that was started anew.
    return {**props, "state": RUNNING, "startedAt": time.time()}


@dataclass(frozen=True)
class ProgramArgs:
    """What runs, where it is reached, and how long it may take to begin and to end."""

    command: Sequence[str]
    environment: pulumi.Input[Mapping[str, str]]
    directory: Path
    log: Path
    host: str
    port: int
    port_key: str  # the configuration key that moves the port, for the message when it is taken
    drain_seconds: float
    ready_seconds: float
    restart_on: pulumi.Input[str] = ""  # a change of this restarts the program: files that it reads at start

    @property
    def url(self) -> str:
        """Where health and metrics are asked for, from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class SupervisedProgram(Resource, module="local", name="SupervisedProgram"):
    """One instance of a role; its resource name is the instance's name."""

    instance: pulumi.Output[str]
    url: pulumi.Output[str]
    log: pulumi.Output[str]
    state: pulumi.Output[str]
    startedAt: pulumi.Output[float]

    def __init__(
        self, name: str, run: pulumi.Input[str], args: ProgramArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        props = {
            "instance": name,
            "run": run,
            "command": list(args.command),
            "environment": args.environment,
            "directory": str(args.directory),
            "log": str(args.log),
            "host": args.host,
            "port": args.port,
            "portKey": args.port_key,
            "url": args.url,
            "stopSeconds": args.drain_seconds + STOP_MARGIN_SECONDS,
            "readySeconds": args.ready_seconds,
            "restartOn": args.restart_on,
            "state": None,
            "startedAt": None,
        }
        super().__init__(ProgramProvider(), name, props, opts)

    @property
    def watched(self) -> pulumi.Output[dict[str, Any]]:
        """What Readiness needs of it."""
        parts = {"instance": self.instance, "url": self.url, "log": self.log, "startedAt": self.startedAt}
        return pulumi.Output.all(**parts).apply(lambda found: dict(found))
