"""Runs a program that declares resources and keeps what it declared: inputs and options, as the engine would get them.

Nothing is made. Each AWS resource's inputs are judged by Terraform's own provider; what AWS would compute is made up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import mocks
from pulumi.runtime.settings import SETTINGS
from pulumi.runtime.stack import run_pulumi_func

from scripts.region_docs.declared import loop_of_thread
from tests.infra.aws import mapping
from tests.infra.aws.terraform import Provider

ACCOUNT, REGION = "123456789012", "us-east-1"
CALLS: Mapping[str, Mapping[str, Any]] = {
    "aws:index/getCallerIdentity:getCallerIdentity": {"accountId": ACCOUNT},
    "aws:index/getPartition:getPartition": {"partition": "aws", "dnsSuffix": "amazonaws.com"},
    "aws:index/getRegion:getRegion": {"region": REGION, "name": REGION},
    "aws:lb/getHostedZoneId:getHostedZoneId": {"id": "Z35SXDOTRQ7X7K"},
}


@dataclass
class Recorded:
    """One resource as it was declared."""

    type: str
    name: str
    urn: str
    inputs: dict[str, Any]
    parent: str
    protect: bool
    dependencies: list[str]
    ignored: list[str]
    provider: str


@dataclass
class Graph:
    """All that a program declared."""

    resources: list[Recorded] = field(default_factory=list)

    def of(self, kind: str) -> list[Recorded]:
        """Resources of a type, such as Bucket, or s3/bucket:Bucket."""
        return [one for one in self.resources if one.type.endswith(f":{kind}") or one.type == kind]

    def one(self, kind: str, name: str = "") -> Recorded:
        """The one resource of a type whose name ends so."""
        found = [one for one in self.of(kind) if one.name.endswith(name)]
        assert len(found) == 1, f"{len(found)} of {kind} {name}: {[one.name for one in self.of(kind)]}"
        return found[0]

    def faults(self, provider: Provider) -> Iterator[str]:
        """What Terraform's provider has against the AWS resources."""
        for one in self.resources:
            if not one.type.startswith("aws:"):
                continue
            try:
                kind = mapping.terraform_type(one.type, provider.schemas)
                fields = provider.fields(kind)
                wanted = mapping.named(fields, one.name) | mapping.arguments(kind, fields, one.inputs)
            except mapping.Unmapped as error:
                yield f"{one.name}: {error}"
                continue
            yield from (f"{one.name}: {fault}" for fault in provider.faults(kind, wanted))


class Mocks(mocks.Mocks):
    """Computes nothing: outputs are the inputs, and what AWS would add is made up from the provider's schema."""

    def __init__(self, provider: Provider, outputs: Mapping[str, Mapping[str, Any]]) -> None:
        self._provider, self._outputs = provider, outputs

    def call(self, args: mocks.MockCallArgs) -> Any:
        return dict(CALLS[args.token])

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        added: Mapping[str, Any] = self._outputs.get(args.name, {})
        if args.typ.startswith("aws:"):
            kind = mapping.terraform_type(args.typ, self._provider.schemas)
            added = {**mapping.made_up(kind, self._provider.fields(kind), args.name), **added}
        given = {key: value for key, value in args.inputs.items() if value is not None}
        return mapping.made_up_id(args.typ, args.name) if args.custom else None, {**added, **given}


class Monitor(mocks.MockMonitor):
    """A mock monitor that also keeps the options of a resource."""

    def __init__(self, mocked: Mocks) -> None:
        super().__init__(mocked)
        self.graph = Graph()

    def Invoke(self, request: Any) -> Any:
        with loop_of_thread():
            return super().Invoke(request)

    def RegisterResource(self, request: Any) -> Any:
        with loop_of_thread():
            answer = super().RegisterResource(request)
        if request.type != "pulumi:pulumi:Stack":
            inputs = pulumi.runtime.rpc.deserialize_properties(request.object)
            recorded = Recorded(
                request.type,
                request.name,
                answer.urn,
                _plain(inputs),
                request.parent,
                request.protect,
                list(request.dependencies),
                list(request.ignoreChanges),
                request.provider,
            )
            self.graph.resources.append(recorded)
        return answer


def record(
    provider: Provider, program: Callable[[], object], outputs: Mapping[str, Mapping[str, Any]] | None = None
) -> Graph:
    """What a program declares; `outputs` are those of resources by their names, where made-up ones will not do."""
    mocked = Mocks(provider, outputs or {})
    monitor = Monitor(mocked)

    async def run() -> None:
        mocks.set_mocks(mocked, project="diphase", stack="test", preview=False, monitor=monitor)
        SETTINGS.rpc_manager.clear()
        SETTINGS.outputs.clear()
        await run_pulumi_func(lambda: (program(), None)[1])

    # In a thread of its own: Pulumi keeps its event loop and its settings by thread and context.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run()).result()
    return monitor.graph


def _plain(value: Any) -> Any:
    """Inputs without the marks of secrets."""
    if isinstance(value, dict):
        if pulumi.runtime.rpc._special_sig_key in value:
            return _plain(value.get("value"))
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
