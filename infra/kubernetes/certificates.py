"""The stack's own certificates as a resource, kept in Pulumi's state as secrets."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, UpdateResult

from infra.config.kubernetes import Certificates as CertificatesConfig
from infra.kubernetes.authority import Held, Pair, Wanted, due, renewed
from infra.provider import StackProvider

FILES = ("tls.crt", "tls.key")


class CertificatesProvider(StackProvider):
    """Makes and renews them; by the clock, so that an `up` long after the last one has something to do."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        return CreateResult("certificates", _made(Held(), props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        return DiffResult(bool(due(_held(_olds), _wanted(_news), datetime.now(UTC))))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        return UpdateResult(_made(_held(_olds), _news))


def _wanted(props: Mapping[str, Any]) -> Wanted:
    ca_life, life = (timedelta(days=int(props[key])) for key in ("caDays", "roleDays"))
    owners = {owner: list(names) for owner, names in props["owners"].items()}
    return Wanted(owners, ca_life, life, int(props["rotation"]))


def _held(props: Mapping[str, Any]) -> Held:
    pairs = {owner: Pair(one["tls.crt"], one["tls.key"]) for owner, one in props["pairs"].items()}
    authorities = [Pair(one["tls.crt"], one["tls.key"]) for one in props["authorities"]]
    return Held(authorities, pairs, int(props["rotation"]))


def _made(held: Held, props: Mapping[str, Any]) -> dict[str, Any]:
    made = renewed(held, _wanted(props), datetime.now(UTC))
    return {
        **props,
        "trusted": made.trusted,
        "authorities": [_files(pair) for pair in made.authorities],
        "pairs": {owner: _files(pair) for owner, pair in made.owners.items()},
    }


def _files(pair: Pair) -> dict[str, str]:
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


class Certificates(Resource, module="kubernetes", name="Certificates"):
    """`trusted` holds the CAs' certificates, `pairs` each owner's files tls.crt and tls.key."""

    trusted: pulumi.Output[str]
    authorities: pulumi.Output[list[dict[str, str]]]
    pairs: pulumi.Output[dict[str, dict[str, str]]]

    def __init__(self, name: str, config: CertificatesConfig, owners: Mapping[str, Sequence[str]]) -> None:
        props = {
            "owners": {owner: list(names) for owner, names in owners.items()},
            "caDays": config.ca_days,
            "roleDays": config.role_days,
            "rotation": config.rotation,
            "trusted": None,
            "authorities": None,
            "pairs": None,
        }
        options = pulumi.ResourceOptions(additional_secret_outputs=["authorities", "pairs"])
        super().__init__(CertificatesProvider(), name, props, options)

    def pair(self, owner: str) -> dict[str, pulumi.Output[str]]:
        """An owner's files."""
        return {file: self.pairs.apply(functools.partial(_file, owner, file)) for file in FILES}


def _file(owner: str, file: str, pairs: Mapping[str, Mapping[str, str]]) -> str:
    return pairs[owner][file]
