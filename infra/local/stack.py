"""The local target: model, key, supervisor, then the roles in the order in which they may be touched."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pulumi

from infra.config import StackConfig
from infra.local import code
from infra.local.api_key import ApiKey
from infra.local.model import LocalModel
from infra.local.program import STOP_MARGIN_SECONDS, ProgramArgs, SupervisedProgram
from infra.local.readiness import Readiness
from infra.local.roles import Layout, PreparedModel, command_of
from infra.local.supervisor import Supervisor
from infra.paths import StackPaths, cache_dir
from infra.process import environment_of, package_of
from services.common.settings import RoleSettings

PLACEHOLDER = PreparedModel(Path("model"), "model", "revision")


class LocalStack:
    """Every resource of a local stack; `outputs` is what the stack exports."""

    def __init__(self, config: StackConfig, project: Path, stack: str) -> None:
        cache = cache_dir(os.environ)
        self._config = config
        self._paths = StackPaths.of(project, stack, cache)
        self._layout = Layout(config, self._paths)
        source = config.model.source
        if "/" in source and (project / source).is_dir():
            source = str(project / source)
        self._model = LocalModel("model", source, config.model.revision, cache)
        self._key = ApiKey("api-key", self._paths)
        stop_seconds = config.local.drain_seconds + 2 * STOP_MARGIN_SECONDS
        self._supervisor = Supervisor("supervisor", self._paths, stop_seconds)
        self._programs: list[SupervisedProgram] = []
        self._roles()
        roles = [program.watched for program in self._programs]
        self._ready = Readiness("ready", self._supervisor.run, roles, config.local.ready_seconds)

    def _roles(self) -> None:
        # Creation only starts a program, so the order costs nothing there. An update drains a program and waits until
        # its successor is ready: decode, which holds the longest requests, before prefill, and the gateway last. One at
        # a time also among equals, so that one that cannot start is the only one that is lost.
        layout, config = self._layout, self._config
        self._program(layout.kv(), "local.basePort")
        for i in range(config.scheduler.replicas):
            self._program(layout.scheduler(i), "local.basePort")
        for i in range(config.decode.replicas):
            self._with_model(functools.partial(layout.worker, "decode", i), "local.basePort")
        for i in range(config.prefill.replicas):
            self._with_model(functools.partial(layout.worker, "prefill", i), "local.basePort")
        gateway_key = "gateway.port" if config.gateway.port else "local.basePort"
        self._with_model(layout.gateway, gateway_key, restart_on=self._key.sha256)

    def _program(self, settings: RoleSettings, port_key: str) -> SupervisedProgram:
        return self._add(settings, environment_of(settings), port_key, "")

    def _with_model(
        self,
        build: Callable[[PreparedModel], RoleSettings],
        port_key: str,
        restart_on: pulumi.Input[str] = "",
    ) -> SupervisedProgram:
        model = pulumi.Output.all(self._model.path, self._model.name, self._model.revision)
        environment = model.apply(
            lambda found: environment_of(build(PreparedModel(Path(found[0]), found[1], found[2])))
        )
        return self._add(build(PLACEHOLDER), environment, port_key, restart_on)

    def _add(
        self,
        settings: RoleSettings,
        environment: pulumi.Input[dict[str, str]],
        port_key: str,
        restart_on: pulumi.Input[str],
    ) -> SupervisedProgram:
        args = ProgramArgs(
            command=command_of(settings),
            environment=environment,
            # Python looks here first: no code must lie in it, for what runs may be another release than the project's.
            directory=self._paths.data,
            log=self._paths.log(settings.instance),
            host=settings.host,
            port=settings.port,
            port_key=port_key,
            drain_seconds=settings.drain_seconds,
            ready_seconds=self._config.local.ready_seconds,
            # What a role has read when it starts: its code, and whatever else its caller names.
            restart_on=pulumi.Output.concat(code.digest(package_of(settings)), " ", restart_on),
        )
        options = pulumi.ResourceOptions(depends_on=[self._supervisor, *self._programs[-1:]])
        program = SupervisedProgram(settings.instance, self._supervisor.run, args, options)
        self._programs.append(program)
        return program

    @property
    def outputs(self) -> dict[str, pulumi.Input[object]]:
        """The gateway's address, the file with its key, and each role's name, address and log."""
        gateway = self._programs[-1]
        return {
            "gateway": {"url": gateway.url, "apiKeyFile": self._key.path, "model": self._model.name},
            "objectives": self._config.objectives.model_dump(by_alias=True),
            "run": self._supervisor.run,
            "roles": [{"name": p.instance, "url": p.url, "log": p.log} for p in self._programs],
        }
