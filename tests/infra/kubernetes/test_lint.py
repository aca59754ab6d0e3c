"""What kube-score says of every stack's manifests: nothing but what is listed here with its reason."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from infra.kubernetes.names import MANIFEST
from infra.kubernetes.stack import manifests
from tests.conftest import CACHE
from tests.infra.kubernetes.stacks import every, plan
from tests.toolchain.kubernetes.judges import linter

GOOD = 10  # the best of its grades
# Checks that are off unless they are asked for.
OPTIONAL = ("container-memory-requests-equal-limits", "container-ports-check", "container-seccomp-profile")
# Check → why it is otherwise here.
EXCEPTIONS = {
    "container-image-pull-policy": "A digest never means another image; a registry that is away must keep no pod down.",
    "deployment-has-host-podantiaffinity": "Pods are spread over nodes and zones by topologySpreadConstraints.",
    "deployment-replicas": "One pod of a role is what that stack asks for.",
    "deployment-targeted-by-hpa-does-not-have-replicas-configured": "For the first moment only: later changes of the "
    "number are ignored, and no update takes what a scaler has set.",
    "horizontalpodautoscaler-replicas": "One pod of a role is what that stack asks for as the least.",
    "service-type": "A port of the nodes is what that stack asks for.",
}


class Finding(NamedTuple):
    """What a check would have otherwise, of which object, such as Deployment/apps/v1/NAMESPACE/gateway."""

    check: str
    of: str
    comment: str


@pytest.fixture(scope="module")
def kube_score() -> Path:
    """The program."""
    if shutil.which("go") is None:
        pytest.skip("needs go, which only a machine without a released CLI has")
    return linter(CACHE)


def findings(kube_score: Path, declared: list[MANIFEST]) -> Iterator[Finding]:
    """Everything that it would have otherwise."""
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": declared})
    optional = [part for name in OPTIONAL for part in ("--enable-optional-test", name)]
    command = [str(kube_score), "score", "--output-format", "json", *optional, "-"]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    for thing in json.loads(done.stdout):
        for check in thing["checks"]:
            if not check["skipped"] and check["grade"] < GOOD:
                for comment in check["comments"] or [{"path": "", "summary": ""}]:
                    said = f"{comment['path']} {comment['summary']}".strip()
                    yield Finding(check["check"]["id"], thing["object_name"], said)


def test_nothing_is_found_but_what_is_listed(kube_score: Path) -> None:
    found = {name: list(findings(kube_score, list(manifests(made)))) for name, made in every()}
    unlisted = {name: [one for one in some if one.check not in EXCEPTIONS] for name, some in found.items()}
    assert not any(unlisted.values()), unlisted
    assert {one.check for some in found.values() for one in some} == set(EXCEPTIONS), "the list has what is no more"


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        ("PodDisruptionBudget", "deployment-has-poddisruptionbudget"),
        ("NetworkPolicy", "pod-networkpolicy"),
        ("Service", "statefulset-has-servicename"),
    ],
)
def test_what_is_missing_is_found(kube_score: Path, kind: str, check: str) -> None:
    declared = [one for one in manifests(plan()) if one["kind"] != kind]
    assert check in {one.check for one in findings(kube_score, declared)}
