"""Every manifest of every stack is taken by the oldest and the newest Kubernetes, and by those whose kinds it uses."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping

import jsonschema
import kubernetes_validate
import pytest

from infra.kubernetes.names import MANIFEST
from infra.kubernetes.stack import manifests
from tests.conftest import CACHE
from tests.infra.kubernetes.crds import validators
from tests.infra.kubernetes.stacks import every, found, plan, secret_manifests
from tests.toolchain.kubernetes.judges import definitions

# The oldest that docs/kubernetes.md names, and the newest there is.
VERSIONS = ("1.31", kubernetes_validate.latest_version())
Foreign = Mapping[tuple[str, str], jsonschema.Draft4Validator]


@pytest.fixture(scope="module")
def foreign() -> Foreign:
    """Validators of the kinds that are not Kubernetes' own."""
    if shutil.which("go") is None:
        pytest.skip("needs go, which only a machine without a released CLI has")
    return validators(definitions(CACHE))


@pytest.fixture(scope="module")
def declared() -> list[MANIFEST]:
    """All that differ, of all stacks."""

    async def gathered() -> list[MANIFEST]:
        return [one for _, made in every() for one in (*manifests(made), *await secret_manifests(made))]

    return list({json.dumps(one, sort_keys=True): one for one in asyncio.run(gathered())}.values())


def kind(manifest: MANIFEST) -> tuple[str, str]:
    return manifest["apiVersion"], manifest["kind"]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_manifest(declared: list[MANIFEST], foreign: Foreign, version: str) -> None:
    own = [one for one in declared if kind(one) not in foreign]
    assert {"Deployment", "StatefulSet", "Secret", "Ingress"} <= {one["kind"] for one in own}
    for manifest in own:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_other_projects_take_those_of_their_kinds(declared: list[MANIFEST], foreign: Foreign) -> None:
    theirs = [one for one in declared if kind(one) in foreign]
    assert {"Certificate", "Gateway", "HTTPRoute", "BackendTLSPolicy"} <= {one["kind"] for one in theirs}
    for manifest in theirs:
        foreign[kind(manifest)].validate(manifest)


def test_what_is_wrong_is_refused(declared: list[MANIFEST], foreign: Foreign) -> None:
    wrong = {**found(plan(), "Deployment", "gateway")}
    wrong["spec"] = {**wrong["spec"], "replicass": 1}
    for version in VERSIONS:
        with pytest.raises(kubernetes_validate.ValidationError, match="replicass"):
            kubernetes_validate.validate(wrong, version, strict=True)
    gateway = next(one for one in declared if one["kind"] == "Gateway")
    listener = {**gateway["spec"]["listeners"][0], "hostnam": "x"}
    with pytest.raises(jsonschema.ValidationError, match="hostnam"):
        foreign[kind(gateway)].validate({**gateway, "spec": {**gateway["spec"], "listeners": [listener]}})
