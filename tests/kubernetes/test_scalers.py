"""A real API server takes the scalers that a stack declares, by KEDA's own definition of ScaledObjects."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.kubernetes.autoscaling import manifests
from infra.kubernetes.names import MANIFEST
from tests.infra.kubernetes.stacks import SCALED, plan
from tests.kubernetes.keda import defined
from tests.toolchain.kubernetes.cluster import Cluster
from tests.toolchain.kubernetes.waiting import NodeError

NIGHT = {"start": "0 22 * * *", "end": "30 6 * * 1-5", "timezone": "Asia/Shanghai", "min": 1}


@pytest.fixture(scope="module")
def keda(cluster: Cluster) -> Iterator[None]:
    with defined(cluster):
        yield


def declared(kind: str) -> list[MANIFEST]:
    decode = {"min": 2, "max": 8, "offPeak": NIGHT} if kind == "keda" else {"max": 8}
    autoscaling = {**SCALED["autoscaling"], "kind": kind, "decode": decode}
    made = plan(**{**SCALED, "autoscaling": autoscaling, "decode": {"replicas": 2}})
    return list(manifests(made))


def offer(cluster: Cluster, namespace: str, manifest: MANIFEST) -> dict[str, Any]:
    """What the API server would keep; raises NodeError where it refuses."""
    own = copy.deepcopy(manifest)
    own["metadata"]["namespace"] = namespace
    arguments = ["create", "--dry-run=server", "--validate=strict", "--output=json", "-f", "-"]
    kept: dict[str, Any] = json.loads(cluster.kubectl("-n", namespace, *arguments, stdin=json.dumps(own)))
    return kept


@pytest.mark.parametrize("kind", ["keda", "hpa"])
@pytest.mark.usefixtures("keda")
def test_every_scaler_is_taken_as_it_is(cluster: Cluster, namespace: str, kind: str) -> None:
    taken = declared(kind)
    assert len(taken) >= 4
    for manifest in taken:
        kept = offer(cluster, namespace, manifest)
        for key, value in manifest.get("spec", {}).items():
            assert kept["spec"][key] == value, "nothing is dropped, nothing is put in its place"


@pytest.mark.usefixtures("keda")
def test_what_is_wrong_is_refused(cluster: Cluster, namespace: str) -> None:
    good = next(one for one in declared("keda") if one["metadata"]["name"] == "decode-worker")
    for key, value, says in (
        ("minReplicaCount", 9, "minReplicaCount must be less than or equal to maxReplicaCount"),
        ("replicas", 1, 'unknown field "spec.replicas"'),
        ("fallback", {"failureThreshold": 3}, "spec.fallback.replicas: Required value"),
    ):
        with pytest.raises(NodeError, match=says.replace(".", r"\.")):
            offer(cluster, namespace, {**good, "spec": {**good["spec"], key: value}})
