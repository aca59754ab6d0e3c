"""`diphase verify` on the whole stack with the real model: what works, what fails, and what cannot be tried."""

import json
import os
import re
import signal

import pytest

from tests.e2e.stack import Stack

pytestmark = pytest.mark.e2e
VERDICTS = {
    "gateway-0": "ok",
    "prefill-worker-0": "ok",
    "decode-worker-0": "failed",
    "short prompt": "failed",
    "refuses a wrong key": "ok",
}
PATIENT = ("--ttft", "120", "--rate", "0.1")  # objectives that a busy machine meets too: speed is not the point here


def findings(done):
    return {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_a_stack_that_works(stack):
    done = stack.run("verify", "--json", *PATIENT, check=False)
    found = findings(done)
    assert {name: finding for name, finding in found.items() if finding["verdict"] == "failed"} == {}
    assert done.returncode == 0
    for role in stack.status()["roles"]:
        assert found[role["name"]]["verdict"] == "ok"
    assert found["KV handoff"]["verdict"] == "ok"
    facts = json.loads(done.stdout)["facts"]
    long = next(answer for answer in facts["answers"] if answer["prompt"] == "long")
    assert 1200 <= long["prompt_tokens"] <= 2000


def test_a_worker_that_hangs_is_named_in_a_table_for_people(stack):
    pid = stack.pids()["decode-worker-0"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = stack.run("verify", "--timeout", "2", check=False)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    for name, verdict in VERDICTS.items():
        assert re.search(rf"^{name} +{verdict}\b", done.stdout, re.MULTILINE), done.stdout
    assert "→" in done.stdout
    assert "checks failed" in done.stdout


def test_a_stack_that_is_not_up_cannot_be_tried(tmp_path):
    down = Stack(tmp_path)
    done = down.run("verify", "--json", check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout)["verdict"] == "impossible"
    done = down.run("verify", check=False)
    assert done.returncode == 2
    assert "diphase up" in done.stderr
