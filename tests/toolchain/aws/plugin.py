"""Pulumi's provider for AWS, made of Terraform's: the engine's calls, each passed on as Terraform's core would.

It serves in this process, and the engine is told its port (PULUMI_DEBUG_PROVIDERS); each provider of a stack is a
connection of its own, by which its settings are known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from tests.infra.aws import mapping
from tests.toolchain.aws import made_up, planned_only, sdk, wire
from tests.toolchain.aws.accounts import Accounts
from tests.toolchain.aws.core import Core, Plan, Refused, State
from tests.toolchain.aws.ledger import Ledger
from tests.toolchain.aws.outputs import outputs
from tests.toolchain.aws.resource import Resource, state_of


class Plugin(provider_pb2_grpc.ResourceProviderServicer):
    """The service; `ledger` is what is to be told of it."""

    def __init__(self, accounts: Accounts, ledger: Ledger) -> None:
        self._accounts, self._ledger = accounts, ledger
        self._settings: dict[str, dict[str, Any]] = {}

    # Of the provider itself.

    def Handshake(self, request, context):
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version="7.51.1")

    def Attach(self, request, context):
        return empty_pb2.Empty()

    def Cancel(self, request, context):
        return empty_pb2.Empty()

    def CheckConfig(self, request, context):
        try:
            self._accounts.wanted(_settings(wire.read(request.news)))
        except mapping.Unmapped as error:
            return provider_pb2.CheckResponse(failures=[provider_pb2.CheckFailure(reason=str(error))])
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request, context):
        same = request.olds == request.news
        kinds = provider_pb2.DiffResponse
        return provider_pb2.DiffResponse(changes=kinds.DIFF_NONE if same else kinds.DIFF_SOME)

    def Configure(self, request, context):
        settings = _settings(wire.read(request.args))
        self._settings[context.peer()] = settings
        with self._refusals(context), self._accounts.using(settings):
            return provider_pb2.ConfigureResponse(supportsPreview=True)

    # Of a resource.

    def Check(self, request, context):
        with self._about(request.urn, context) as (core, resource):
            inputs = resource.named(wire.read(request.news), wire.read(request.olds), request.randomSeed)
            try:
                faults = list(core.provider.faults(resource.kind, resource.arguments(inputs)))
            except mapping.Unmapped as error:
                faults = [str(error)]
            failures = [provider_pb2.CheckFailure(reason=fault) for fault in faults]
            return provider_pb2.CheckResponse(inputs=wire.write(inputs), failures=failures)

    def Diff(self, request, context):
        with self._about(request.urn, context) as (core, resource):
            prior, inputs = state_of(wire.read(request.olds)), wire.read(request.news)
            assert prior is not None
            return resource.difference(prior, core.plan(resource.kind, prior, resource.arguments(inputs)), inputs)

    def Create(self, request, context):
        with self._about(request.urn, context) as (core, resource):
            wanted = resource.arguments(wire.read(request.properties))
            plan = core.plan(resource.kind, None, wanted)
            if request.preview:
                return provider_pb2.CreateResponse(properties=resource.outputs(State(plan.values)))
            with self._partly(context, resource, request.properties):
                state = self._apply(core, resource, None, plan, wanted)
            return provider_pb2.CreateResponse(id=state.id, properties=resource.outputs(state))

    def Update(self, request, context):
        with self._about(request.urn, context) as (core, resource):
            prior, wanted = state_of(wire.read(request.olds)), resource.arguments(wire.read(request.news))
            plan = core.plan(resource.kind, prior, wanted)
            if request.preview:
                return provider_pb2.UpdateResponse(properties=resource.outputs(State(plan.values)))
            with self._partly(context, resource, request.news):
                state = self._apply(core, resource, prior, plan, wanted)
            return provider_pb2.UpdateResponse(properties=resource.outputs(state))

    def Delete(self, request, context):
        with self._about(request.urn, context) as (core, resource):
            prior = state_of(wire.read(request.properties))
            if prior is not None and resource.kind not in planned_only.REASONS:
                begun = time.monotonic()
                core.apply(resource.kind, prior, None, None)
                self._ledger.took("delete", resource.kind, time.monotonic() - begun)
            return empty_pb2.Empty()

    def Read(self, request, context):
        with self._about(request.urn, context) as (core, resource):
            state = state_of(wire.read(request.properties))
            if state is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{request.urn} is not of this state: nothing is imported")
            if resource.kind not in planned_only.REASONS:
                state = core.read(resource.kind, state)
            if state is None:
                return provider_pb2.ReadResponse()
            found = resource.outputs(state)
            return provider_pb2.ReadResponse(id=request.id, properties=found, inputs=request.inputs)

    def Invoke(self, request, context):
        with self._refusals(context), self._accounts.using(self._settings[context.peer()]) as core:
            package, module, name = request.tok.split(":")
            token = f"{package}:{module.replace('/get', '/', 1)}:{name.removeprefix('get')}"
            kind = mapping.terraform_type(token, core.provider.schema.data_source_schemas)
            fields = core.source(kind)
            said = {key: value for key, value in wire.read(request.args).items() if key != "region"}
            found = core.data(kind, mapping.arguments(kind, fields, said))
            return provider_pb2.InvokeResponse(
                **{"return": wire.write(outputs(kind, fields, sdk.function(request.tok), found))}
            )

    def _apply(self, core: Core, resource: Resource, prior: State | None, plan: Plan, wanted: dict[str, Any]) -> State:
        if resource.kind in planned_only.REASONS:
            self._ledger.planned.add(resource.kind)
            return State(made_up.filled(resource.kind, resource.token, resource.name, resource.fields, plan.values))
        begun = time.monotonic()
        state = core.apply(resource.kind, prior, plan, wanted)
        self._ledger.took("update" if prior else "create", resource.kind, time.monotonic() - begun)
        return state

    @contextmanager
    def _about(self, urn: str, context: grpc.ServicerContext) -> Iterator[tuple[Core, Resource]]:
        settings = self._settings[context.peer()]
        with self._refusals(context), self._accounts.using(settings) as core:
            token = urn.split("::")[2].rpartition("$")[2]
            kind = mapping.terraform_type(token, core.provider.schemas)
            yield core, Resource(urn, token, kind, core.provider.fields(kind), settings.get("region", ""))

    @contextmanager
    def _refusals(self, context: grpc.ServicerContext) -> Iterator[None]:
        try:
            yield
        except (Refused, mapping.Unmapped) as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))

    @contextmanager
    def _partly(self, context: grpc.ServicerContext, resource: Resource, inputs: Any) -> Iterator[None]:
        """What was made before it went wrong is kept, as the engine does with resources that do not get ready."""
        try:
            yield
        except Refused as error:
            if error.state and error.state.is_there:
                failed = provider_pb2.ErrorResourceInitFailed(
                    id=error.state.id,
                    properties=resource.outputs(error.state),
                    reasons=[str(error)],
                    inputs=inputs,
                )
                detail = any_pb2.Any()
                detail.Pack(failed, type_url_prefix="type.googleapis.com")
                status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[detail])
                context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            raise


def _settings(inputs: dict[str, Any]) -> dict[str, Any]:
    """A provider's inputs: what is no text of theirs travels as JSON."""
    return {name: _parsed(value) for name, value in inputs.items() if name not in ("version", "pluginDownloadURL")}


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
