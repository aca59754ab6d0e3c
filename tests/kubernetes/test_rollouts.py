"""Rolling updates under load: no request fails, each answer is right, and no KV goes from one revision to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.logs import following
from tests.kubernetes.stack import ClusterStack, eventually, timed
from tests.kubernetes.streams import answers, streaming

ANSWER_SECONDS = 120.0
# A change for each role that no other role reads.
CHANGES: dict[str, dict[str, Any]] = {
    "gateway": {"gateway": {"maxBodyBytes": 3_000_000}},
    "scheduler": {"scheduler": {"maxQueue": 77}},
    "prefill-worker": {"prefill": {"maxBatchTokens": 1024}},
    "decode-worker": {"decode": {"idleWaitMs": 10.0}},
    "kv": {"kubernetes": {"kv": {"cpu": "60m", "cpuLimit": "2", "memory": "512Mi"}}},
}


@pytest.mark.parametrize("role", CHANGES)
def test_a_role_is_replaced_and_no_request_notices(
    stack: ClusterStack, expected: dict[str, str], figures: dict[str, float], role: str
) -> None:
    before = stack.identities()
    with streaming(stack, expected) as seen:
        stack.configure(**CHANGES[role])
        with timed(figures, f"rolling update of {role} under 8 streams"):
            stack.diphase("up")
        seen.more(8, ANSWER_SECONDS)
    assert not seen.failed
    assert not seen.wrong
    after = stack.identities()
    assert {each for each in before if before[each] != after[each]} == {role}
    assert not before[role] & after[role]


def test_a_new_revision_is_never_paired_with_the_old_one(
    stack: ClusterStack, expected: dict[str, str], figures: dict[str, float], tmp_path: Path
) -> None:
    old, new = str(stack.model.revision), f"{stack.model.revision}-again"
    with following(stack, tmp_path) as logs, streaming(stack, expected) as seen:
        stack.configure(model={"revision": new})
        with timed(figures, "rolling update of the model's revision under 8 streams"):
            stack.diphase("up")
        eventually("the old pods to go", lambda: len(stack.pods(ending=True)) == len(stack.pods()), ANSWER_SECONDS)
        seen.more(8, ANSWER_SECONDS)
    assert not seen.failed
    assert not seen.wrong
    legs = logs.events("leg_done")
    revision_of = {leg["engine"]: leg["revision"] for leg in legs}
    pairs = [(revision_of[leg["kv_of"]], leg["revision"]) for leg in legs if leg["phase"] == "decode"]
    assert set(pairs) == {(old, old), (new, new)}


def test_a_revision_that_lacks_a_phase_leaves_the_old_pair_at_work(
    stack: ClusterStack, expected: dict[str, str]
) -> None:
    """Its prefill workers could begin; were they ready, Kubernetes would end those that still have a partner."""
    before, good = stack.identities(), stack.config["model"]["revision"]
    nowhere = {**stack.config["kubernetes"]["decode"], "nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
    stack.configure(model={"revision": f"{good}-half"}, kubernetes={"decode": nowhere, "readySeconds": 40})
    try:
        failed = stack.try_("up")
        assert failed.returncode == 1
        assert "it has no node" in failed.stderr
        assert answers(stack) == expected
        after = stack.identities()
        for role in ("prefill-worker", "decode-worker"):
            assert before[role] < after[role], "the old ones, and one that is not ready"
    finally:
        nowhere.pop("nodeSelector")
        stack.configure(model={"revision": good}, kubernetes={"decode": nowhere, "readySeconds": 300})
        stack.diphase("up")
    assert {role: pods for role, pods in stack.identities().items() if role.endswith("-worker")} == {
        role: pods for role, pods in before.items() if role.endswith("-worker")
    }
