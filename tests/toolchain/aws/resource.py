"""A resource in Pulumi's words and in Terraform's: its inputs, its outputs, what a plan changes."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime.proto import provider_pb2

from tests.infra.aws import mapping
from tests.infra.aws.values import Fields
from tests.toolchain.aws import sdk, wire
from tests.toolchain.aws.core import Plan, State, changed
from tests.toolchain.aws.outputs import names, outputs

# Beside a resource's own properties: Terraform's state, which holds secrets, and the names that nobody gave.
STATE, PRIVATE, AUTOMATIC = "__state", "__private", "__automatic"


@dataclass(frozen=True)
class Resource:
    """What a call is about; `region` is that of its provider."""

    urn: str
    token: str
    kind: str
    fields: Fields
    region: str

    @property
    def name(self) -> str:
        return self.urn.rpartition("::")[2]

    @property
    def names(self) -> dict[str, str]:
        """Terraform's → Pulumi's."""
        return names(self.kind, self.fields, sdk.resource(self.token))

    def named(self, inputs: dict[str, Any], before: dict[str, Any], seed: bytes) -> dict[str, Any]:
        """The inputs, with a name where one is needed and nobody gave it: as before, or a new one."""
        needed = {self.names.get(key, key) for key in mapping.named(self.fields, self.name)}
        given = sorted(name for name in needed if inputs.get(name) is None)
        if not given:
            return inputs
        fresh = f"{self.name}-{hashlib.sha256(seed + self.urn.encode()).hexdigest()[:7]}"
        kept = {name: before[name] for name in before.get(AUTOMATIC) or ()}
        return {**inputs, **{name: kept.get(name, fresh) for name in given}, AUTOMATIC: given}

    def arguments(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs as Terraform's; raises mapping.Unmapped."""
        # Every resource has a region since provider 6; here it is the provider's.
        said = {key: value for key, value in inputs.items() if not key.startswith("__") and key != "region"}
        return mapping.arguments(self.kind, self.fields, said)

    def outputs(self, state: State) -> struct_pb2.Struct:
        """What the engine is told, Terraform's state included once it is known."""
        properties = sdk.resource(self.token)
        found = outputs(self.kind, self.fields, properties, state.values)
        if "region" in properties:
            found.setdefault("region", self.region)
        if not wire.has_unknown(state.values):
            found[STATE] = wire.secret(json.dumps(state.values))
            found[PRIVATE] = base64.b64encode(state.private).decode()
        return wire.write(found)

    def difference(self, prior: State, plan: Plan, inputs: dict[str, Any]) -> provider_pb2.DiffResponse:
        """What a plan changes; what only AWS decides is no reason for an update."""
        replacing = set(plan.replacing)
        decided = {key for key, field in self.fields.items() if field.computed and not field.optional}
        differing = set(changed(self.fields, prior, plan))
        answer = provider_pb2.DiffResponse(hasDetailedDiff=True, changes=provider_pb2.DiffResponse.DIFF_NONE)
        if not differing and not replacing:
            return answer
        answer.changes = provider_pb2.DiffResponse.DIFF_SOME
        known, kinds = self.names, provider_pb2.PropertyDiff
        for key in sorted((differing - decided) | replacing):
            name = known.get(key, key)
            answer.diffs.append(name)
            answer.detailedDiff[name].kind = kinds.UPDATE_REPLACE if key in replacing else kinds.UPDATE
        answer.replaces.extend(known.get(key, key) for key in sorted(replacing))
        # Two of one name can't be there at the same time.
        answer.deleteBeforeReplace = bool(replacing) and not inputs.get(AUTOMATIC)
        return answer


def state_of(outputs: dict[str, Any]) -> State | None:
    """Terraform's state, out of outputs; None where there is none."""
    if STATE not in outputs:
        return None
    return State(json.loads(outputs[STATE]), base64.b64decode(outputs.get(PRIVATE, "")))
