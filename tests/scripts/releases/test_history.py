"""The history as the real CLI gives it: results, records, configuration and secrets, and what was cut off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.releases import choice
from scripts.releases.history import load
from scripts.releases.updates import Value
from tests.infra.project import make_project, write_stack
from tests.scripts.releases import bare


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose state is with a backend of which it knows the address only."""
    (tmp_path / "backend").mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/backend")
    made = make_project(tmp_path / "project", monkeypatch)
    write_stack(made, bare.STACK, {"target": "local", "decode": {"replicas": 2, "idleWaitMs": 12.5}})
    return made


def history() -> list[dict[str, object]]:
    """`diphase history --json`."""
    command = [f"{sys.prefix}/bin/diphase", "history", "--json", "--stack", bare.STACK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


def test_a_history_tells_what_each_update_was(project: Path) -> None:
    assert load(bare.engine()).updates == []
    assert bare.run("up", "one")
    bare.engine().pulumi("config", "set", "--secret", "diphase:token", text="s3cret")
    assert not bare.run("up", "fail")

    killed = bare.start("up", "hang")
    assert killed.stdout is not None
    assert killed.stdout.readline() == "hangs\n"
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    cut_off = history()[0]
    assert (cut_off["update"], cut_off["result"], cut_off["commit"]) == (None, "unfinished", "c" * 40)

    bare.engine().cancel()
    assert bare.run("refresh")
    found = load(bare.engine())
    assert found.unfinished is not None
    assert found.unfinished.attempt == "hang"
    assert choice.default(found.updates, found.unfinished).number == 1
    assert bare.run("up", "two")

    found = load(bare.engine())
    assert found.unfinished is None
    told = [(update.number, update.kind, update.result, update.title) for update in found.updates]
    assert told == [
        (1, "update", "succeeded", "word one"),
        (2, "update", "failed", "word fail"),
        (3, "refresh", "succeeded", ""),
        (4, "update", "succeeded", "word two"),
    ]
    first, last = found.updates[0], found.updates[-1]
    assert first.record == bare.record("one")
    assert first.started <= (first.ended or first.started) <= last.started
    assert first.config["diphase:decode"] == Value({"replicas": 2, "idleWaitMs": 12.5})
    assert last.config["diphase:token"] == Value(None, secret=True)
    assert load(bare.engine(), secrets=True).updates[-1].config["diphase:token"] == Value("s3cret", secret=True)

    rows = history()
    assert [row["update"] for row in rows if row["current"]] == [4]
    assert [row["update"] for row in rows if row["good"]] == [4, 1]
    assert "s3cret" not in json.dumps(rows)
