"""What Terraform's core does between a configuration and a provider: plan, apply, read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from tests.infra.aws.terraform import Provider, errors
from tests.infra.aws.values import UNKNOWN, Fields, decode, encode, fields_of, same

Value = dict[str, Any]


class Refused(Exception):
    """The provider's errors; `state` is what there is nevertheless, of a resource that was made in part."""

    def __init__(self, faults: list[str], state: State | None = None) -> None:
        super().__init__("\n".join(faults))
        self.state = state


@dataclass(frozen=True)
class State:
    """A resource as the provider has it; `private` is its own affair."""

    values: Value
    private: bytes = b""

    @property
    def id(self) -> str:
        """The resource's; types of late have none of their own but an ARN."""
        return str(self.values.get("id") or self.values.get("arn") or "")

    @property
    def is_there(self) -> bool:
        """Whether anything was made."""
        return bool(self.values) and self.values.get("id") not in (None, "", UNKNOWN)


@dataclass(frozen=True)
class Plan:
    """What a resource is to be, and the arguments that can't change without a new one."""

    values: Value
    private: bytes
    replacing: frozenset[str]


class Core:
    """One running provider, and what is asked of it about its types."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._sources: dict[str, Fields] = {}

    @property
    def settings(self) -> Fields:
        """The provider's own."""
        return fields_of(self.provider.schema.provider.block)

    def source(self, kind: str) -> Fields:
        """The fields of a data source."""
        if kind not in self._sources:
            self._sources[kind] = fields_of(self.provider.schema.data_source_schemas[kind].block)
        return self._sources[kind]

    def configure(self, settings: Mapping[str, Any]) -> None:
        packed = _packed(self.settings, settings)
        prepared = _good(self.provider.call("PrepareProviderConfig", config=packed)).prepared_config
        _good(self.provider.call("Configure", terraform_version="1.11.4", config=prepared))

    def plan(self, kind: str, prior: State | None, wanted: Value) -> Plan:
        fields, before = self.provider.fields(kind), prior.values if prior else None
        answer = _good(
            self.provider.call(
                "PlanResourceChange",
                type_name=kind,
                prior_state=_packed(fields, before),
                proposed_new_state=_packed(fields, proposed(fields, before, wanted)),
                config=_packed(fields, wanted),
                prior_private=prior.private if prior else b"",
            )
        )
        replacing = frozenset(path.steps[0].attribute_name for path in answer.requires_replace)
        return Plan(_unpacked(fields, answer.planned_state), answer.planned_private, replacing)

    def apply(self, kind: str, prior: State | None, plan: Plan | None, wanted: Value | None) -> State:
        """Make, change or, without a plan, take away a resource."""
        fields = self.provider.fields(kind)
        answer = self.provider.call(
            "ApplyResourceChange",
            type_name=kind,
            prior_state=_packed(fields, prior.values if prior else None),
            planned_state=_packed(fields, plan.values if plan else None),
            config=_packed(fields, wanted),
            planned_private=plan.private if plan else prior.private if prior else b"",
        )
        state = State(_unpacked(fields, answer.new_state), answer.private)
        _good(answer, state)
        return state

    def read(self, kind: str, state: State) -> State | None:
        """The resource as it is now; None where it is gone."""
        fields = self.provider.fields(kind)
        packed = _packed(fields, state.values)
        answer = _good(self.provider.call("ReadResource", type_name=kind, current_state=packed, private=state.private))
        values = _unpacked(fields, answer.new_state)
        return State(values, answer.private) if values is not None else None

    def data(self, kind: str, wanted: Value) -> Value:
        """What a data source answers."""
        packed = _packed(self.source(kind), wanted)
        _good(self.provider.call("ValidateDataSourceConfig", type_name=kind, config=packed))
        found: Value = _unpacked(
            self.source(kind), _good(self.provider.call("ReadDataSource", type_name=kind, config=packed)).state
        )
        return found


def proposed(fields: Fields, prior: Value | None, wanted: Any) -> Any:
    """The configuration, with what the provider computed before where it says nothing (objchange.ProposedNew)."""
    if wanted is UNKNOWN or wanted is None:
        return wanted
    found = {}
    for name, field in fields.items():
        value, before = wanted.get(name), (prior or {}).get(name)
        if field.block and value is not UNKNOWN and value is not None:
            found[name] = _blocks(field.type, field.block, before, value)
        else:
            found[name] = before if value is None and field.computed else value
    return found


def _blocks(kind: Any, nesting: str, prior: Any, wanted: Any) -> Any:
    if nesting == "single":
        return proposed(kind, prior, wanted)
    inner, before = kind[1], prior if isinstance(prior, list) else []
    if nesting == "list":
        padded = [*before, *[None] * len(wanted)]
        return [proposed(inner, padded[place], one) for place, one in enumerate(wanted)]
    return [proposed(inner, next((p for p in before if _alike(inner, one, p)), None), one) for one in wanted]


def _alike(fields: Fields, wanted: Value, prior: Value) -> bool:
    """Whether a block of a set is one that was there, apart from what the provider computed."""
    said = {n: f for n, f in fields.items() if f.block or not (f.computed and wanted.get(n) is None)}
    return same(said, {n: wanted.get(n) for n in said}, {n: prior.get(n) for n in said})


def changed(fields: Fields, prior: State, plan: Plan) -> Iterator[str]:
    """The fields that a plan changes."""
    for name, field in fields.items():
        one = {name: field}
        if not same(one, {name: prior.values.get(name)}, {name: plan.values.get(name)}):
            yield name


def _packed(fields: Fields, value: Mapping[str, Any] | None) -> dict[str, bytes]:
    return {"msgpack": msgpack.packb(encode(fields, value))}


def _unpacked(fields: Fields, value: Any) -> Any:
    if value.json and not value.msgpack:
        return decode(fields, json.loads(value.json))
    return decode(fields, msgpack.unpackb(value.msgpack, strict_map_key=False)) if value.msgpack else None


def _good(answer: Any, state: State | None = None) -> Any:
    faults = list(errors(answer))
    if faults:
        raise Refused(faults, state)
    return answer
