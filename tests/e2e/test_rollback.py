"""The drill: good, bad, rollback; good, half-finished bad, rollback. Text, configuration and code are as before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.checkout import Checkout
from tests.e2e.stack import MODEL, wait_until

BROKEN = 'import sys\n\nprint("the disk is full", flush=True)\nsys.exit(3)\n'
ROLES = {"gateway-0", "scheduler-0", "scheduler-1", "prefill-worker-0", "decode-worker-0", "kv-0"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A stack of its own code, up."""
    small = {
        # As little memory as will do: `verify` has prompts of 1,500 tokens.
        "model": {"maxLength": 2048},
        "kv": {"poolMib": 128},
        # A rollback ends with `verify`, and this machine may be busy.
        "objectives": {"ttftSeconds": 60.0, "decodeTokensPerSecond": 0.0},
    }
    made = Checkout(tmp_path_factory.mktemp("checkout"), config=small)
    try:
        made.up()
        yield made
    finally:
        made.end()


def text(checkout: Checkout) -> str:
    """An answer of the stack."""
    stream = checkout.client().completions.create(
        model=MODEL, prompt="A letter from the sea:", max_tokens=60, temperature=0, stream=True
    )
    return "".join(piece.choices[0].text for piece in stream)


def resources(checkout: Checkout) -> dict[str, dict[str, Any]]:
    """What each role's resource says of its code and settings, apart from where it runs."""
    path = checkout.project / ".diphase/state/.pulumi/stacks/diphase" / f"{checkout.name}.json"
    found = {r["urn"].rpartition("::")[2]: r for r in json.loads(path.read_text())["checkpoint"]["latest"]["resources"]}
    return {name: {key: found[name]["outputs"][key] for key in ("restartOn", "environment")} for name in ROLES}


def history(checkout: Checkout) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(checkout.run("history", "--json").stdout)
    return rows


def homes(checkout: Checkout) -> set[Path]:
    """The environments that the roles' processes run in."""
    commands = [psutil.Process(pid).cmdline() for pid in checkout.pids().values() if pid]
    return {Path(command[0]).parents[1] for command in commands}


def test_good_bad_rollback_and_good_half_finished_rollback(checkout: Checkout) -> None:
    good, answer, made = checkout.head, text(checkout), resources(checkout)
    assert homes(checkout) == {checkout.project / ".venv"}

    # Bad: a role's code ends as it starts, and the configuration is another.
    (checkout.project / "services" / "scheduler" / "__main__.py").write_text(BROKEN)
    checkout.config["decode"] = {"idleWaitMs": 7.5}
    checkout.write_config()
    bad = checkout.commit("A bad one")
    failed = checkout.run("up", check=False)
    assert failed.returncode == 1
    assert "scheduler-0 ended while it started" in failed.stderr
    assert "the disk is full" in failed.stderr
    assert text(checkout) == answer, "the other scheduler serves on"

    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(text, checkout)
        done = checkout.run("rollback", "--yes")
        assert stream.result(120) == answer
    assert "diphase:decode.idleWaitMs: 7.5 → (absent)" in done.stderr
    assert "is what update 1 was, and works" in done.stderr
    assert text(checkout) == answer
    assert resources(checkout) == made
    assert homes(checkout) == {checkout.releases[0] / ".venv"}
    latest, left, first = history(checkout)
    assert (left["commit"], left["result"]) == (bad, "failed")
    assert (latest["commit"], latest["result"], latest["good"]) == (good, "succeeded", True)
    assert latest["rollback"] == {"origin": 2, "target": 1}
    assert latest["config"] == first["config"]

    # Half-finished: killed when it has changed some roles and others not.
    (checkout.project / "services" / "scheduler" / "__main__.py").unlink()
    checkout.git("checkout", "--quiet", good, "--", ".")
    common = checkout.project / "services" / "common" / "settings.py"
    common.write_text(f"{common.read_text()}\nCHANGED = True\n")
    checkout.commit("Not to be finished")
    before = checkout.pids()["kv-0"]
    process = subprocess.Popen(
        [str(checkout.diphase), "up", "--stack", checkout.name],
        cwd=checkout.project,
        env=checkout.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        # Between its old program and its new one supervisord knows none of that name.
        wait_until("some roles are changed", lambda: checkout.pids().get("kv-0", 0) not in (0, before))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    assert homes(checkout) == {checkout.project / ".venv", checkout.releases[0] / ".venv"}

    held = checkout.run("rollback", "--yes", check=False)
    assert held.returncode == 1
    assert "which is gone" in held.stderr
    assert "diphase cancel" in held.stderr
    checkout.run("cancel")
    done = checkout.run("rollback", "--yes")
    assert "has not ended" in done.stderr
    assert "what update 3 was, and works" in done.stderr
    assert text(checkout) == answer
    assert resources(checkout) == made
    assert homes(checkout) == {checkout.releases[0] / ".venv"}

    checkout.close_clients()
    checkout.run("down")
    assert checkout.releases == []
    assert checkout.git("worktree", "list").count("\n") == 0
