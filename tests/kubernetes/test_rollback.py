"""The drill on a cluster: good, bad, rollback; good, half-finished bad, rollback. All is as before."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from tests.kubernetes.stack import ClusterStack, eventually

# A rollback ends with `verify`, and this machine may be busy.
PATIENT = {"ttftSeconds": 60.0, "decodeTokensPerSecond": 0.0}
CHANGE_SECONDS = 120.0


def templates(stack: ClusterStack) -> dict[str, Any]:
    """What each role's pods are made from: images by digest, settings by the hash of their content."""
    found = json.loads(stack.kubectl("get", "deployments,statefulsets", "--output=json"))["items"]
    return {one["metadata"]["name"]: one["spec"]["template"] for one in found}


def history(stack: ClusterStack) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(stack.diphase("history", "--json"))
    return rows


def test_good_bad_rollback_and_good_half_finished_rollback(stack: ClusterStack) -> None:
    stack.configure(objectives=PATIENT)
    good = stack.release.commit("A good one")
    stack.diphase("up")
    answer, made, before = stack.answer(), templates(stack), stack.identities()
    first = history(stack)[0]
    assert (first["commit"], first["good"]) == (good, True)

    # Bad: a gateway's image where the scheduler's should be, and the configuration is another.
    config, digests = dict(stack.config), stack.config["images"]["digests"]
    try:
        stack.configure(
            images={"digests": {**digests, "scheduler": digests["gateway"]}},
            scheduler={"maxQueue": 71},
            kubernetes={"readySeconds": 30},
        )
        bad = stack.release.commit("A bad one")
        failed = stack.try_("up")
        assert failed.returncode == 1
        assert "ended with status 1" in failed.stderr
        assert stack.answer() == answer, "the old pods serve on"
        assert history(stack)[0]["commit"] == bad

        done = stack.try_("rollback", "--yes")
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert f"is what update {first['update']} was, and works" in done.stderr
        assert "diphase:scheduler.maxQueue: 71 → " in done.stderr
        latest = history(stack)[0]
        assert (latest["commit"], latest["result"], latest["good"]) == (good, "succeeded", True)
        assert (latest["config"], latest["images"]) == (first["config"], digests)
        assert (stack.answer(), templates(stack)) == (answer, made)
        assert stack.identities() == before, "no pod that served had to go"

        # Half-finished: killed when it has changed some roles and not others.
        stack.config = dict(config)
        stack.configure(scheduler={"maxQueue": 72}, decode={"idleWaitMs": 9.0})
        stack.release.commit("Not to be finished")
        process = stack.start("up")
        eventually("a change", lambda: templates(stack)["scheduler"] != made["scheduler"], CHANGE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        assert history(stack)[0]["result"] == "unfinished"
        held = stack.try_("rollback", "--yes")
        assert "which is gone" in held.stderr
        stack.diphase("cancel")
        done = stack.try_("rollback", "--yes")
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert "has not ended" in done.stderr
        assert (stack.answer(), templates(stack)) == (answer, made)
        assert history(stack)[0]["images"] == digests
    finally:
        stack.release.git("checkout", "--quiet", "--force", good)
        stack.config = config
    stack.diphase("preview", "--expect-no-changes")
