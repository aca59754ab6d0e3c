"""Pulumi's provider for Kubernetes where there is no cluster: it takes what is right, and keeps it as said."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from tests.infra.aws.values import UNKNOWN
from tests.toolchain.aws import wire
from tests.toolchain.aws.ledger import Ledger

# Groups of Kubernetes' own that have a dot (the rest are core, apps, batch, …).
OWN = ".k8s.io"
# What nobody knows before something is made can still be anything.
IDENTITY = ("apiVersion", "kind")


class Cluster(provider_pb2_grpc.ResourceProviderServicer):
    """The service; objects that were kept are counted in the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def Handshake(self, request, context):
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version="4.25.0")

    def Attach(self, request, context):
        return empty_pb2.Empty()

    def Cancel(self, request, context):
        return empty_pb2.Empty()

    def CheckConfig(self, request, context):
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request, context):
        return provider_pb2.DiffResponse(changes=_difference(request.olds == request.news))

    def Configure(self, request, context):
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request, context):
        failures = [provider_pb2.CheckFailure(reason=fault) for fault in _faults(wire.read(request.news))]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def Diff(self, request, context):
        before, now = wire.read(request.old_inputs), wire.read(request.news)
        differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        renamed = [
            name for name in differing if name in IDENTITY or (name == "metadata" and _name(before) != _name(now))
        ]
        return provider_pb2.DiffResponse(changes=_difference(not differing), diffs=differing, replaces=renamed)

    def Create(self, request, context):
        kind = request.urn.split("::")[2].rpartition("$")[2]
        if not request.preview:
            self._ledger.kept[kind] += 1
        identifier = "" if request.preview else _name(wire.read(request.properties)) or request.urn.rpartition("::")[2]
        return provider_pb2.CreateResponse(id=identifier, properties=request.properties)

    def Update(self, request, context):
        return provider_pb2.UpdateResponse(properties=request.news)

    def Read(self, request, context):
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Delete(self, request, context):
        return empty_pb2.Empty()


def _difference(same: bool) -> provider_pb2.DiffResponse.DiffChanges.ValueType:
    kinds = provider_pb2.DiffResponse
    return kinds.DIFF_NONE if same else kinds.DIFF_SOME


def _name(inputs: dict[str, Any]) -> str:
    """namespace/name of an object; empty for what is none, such as a chart."""
    metadata = inputs.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return ""
    return "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part) not in (None, UNKNOWN))


def _faults(inputs: dict[str, Any]) -> list[str]:
    """What Kubernetes has against an object; nothing of other projects' kinds, charts and unknown values."""
    if "apiVersion" not in inputs or wire.has_unknown(inputs):
        return []
    group = str(inputs["apiVersion"]).rpartition("/")[0]
    if "." in group and not group.endswith(OWN):
        return []
    try:
        kubernetes_validate.validate(_said(inputs), kubernetes_validate.latest_version(), strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return [f"{inputs.get('kind')} {_name(inputs)}: {error}"]
    return []


def _said(value: Any) -> Any:
    """Without what is null."""
    if isinstance(value, dict):
        return {name: _said(inner) for name, inner in value.items() if inner is not None and not name.startswith("__")}
    return [_said(inner) for inner in value] if isinstance(value, list) else value
