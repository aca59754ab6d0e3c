"""What the stack's own roles may do in AWS: read the model, keep the KV tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import pulumi

from infra.aws.identity import Workload
from infra.aws.permissions.statement import Place, Statement
from infra.aws.permissions.stores import keeps, reads
from infra.config import StackConfig
from infra.kubernetes.names import Role

# The gateway reads the tokenizer and the chat template, which lie beside the weights.
READERS: tuple[Role, ...] = ("gateway", "prefill-worker", "decode-worker")
KEEPERS: tuple[Role, ...] = ("prefill-worker", "decode-worker", "kv")


@dataclass(frozen=True)
class Stores:
    """`weights` and `kv` are the ARNs of the region's buckets, `key` that of the key they are encrypted with."""

    weights: pulumi.Input[str]
    kv: pulumi.Input[str]
    key: pulumi.Input[str]


def role_workloads(config: StackConfig, namespace: str, stores: Stores, place: Place) -> Mapping[str, Workload]:
    """The roles that ask AWS for something; the others get no credentials at all."""
    roles = sorted({*READERS, *KEEPERS})
    return {role: Workload(namespace, role, list(_statements(role, config, stores, place))) for role in roles}


def _statements(role: Role, config: StackConfig, stores: Stores, place: Place) -> Iterator[Statement]:
    if role in READERS:
        yield from reads(stores.weights, stores.key, place, "Weights")
        yield from _elsewhere(config, stores, place)
    if role in KEEPERS:
        yield from keeps(stores.kv, stores.key, place, "Kv")


def _elsewhere(config: StackConfig, stores: Stores, place: Place) -> Iterator[Statement]:
    """A model that lies in another bucket than the region's own."""
    address = urlsplit(config.model.source or "")
    if address.scheme != "s3":
        return
    bucket = pulumi.Output.concat("arn:", place.partition, f":s3:::{address.netloc}")
    yield from reads(bucket, stores.key, place, "Model")
