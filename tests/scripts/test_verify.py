"""The command around the checks: what it tries, by which objectives, and how it says what it found."""

import json
import subprocess
import sys

from scripts import verify
from scripts.verification.facts import Facts, Objectives
from scripts.verification.finding import Finding

FINDINGS = [
    Finding("gateway-0", "ok", "ready at http://127.0.0.1:1"),
    Finding("KV handoff", "failed", "[0 transfers]", "see the logs"),
]


def outputs(key, **more):
    gateway = {"url": "http://127.0.0.1:1/", "apiKeyFile": str(key)}
    return {"gateway": gateway, "roles": [{"name": "kv-0", "url": "http://127.0.0.1:2/", "log": "x"}], **more}


def test_objectives_come_from_options_then_the_stack_then_the_defaults(tmp_path):
    stack = outputs(tmp_path, objectives={"ttftSeconds": 1.0, "ttftTokens": 99, "decodeTokensPerSecond": 7.0})
    assert verify.objectives_of(outputs(tmp_path), None, None) == Objectives()
    assert verify.objectives_of(stack, None, None) == Objectives(1.0, 99, 7.0)
    assert verify.objectives_of(stack, 0.5, 0.0) == Objectives(0.5, 99, 0.0)


def test_for_people(capsys):
    verify.show(FINDINGS, True, 3.2, "local")
    said = capsys.readouterr().out
    for part in ("gateway-0", "[0 transfers]", "→ see the logs", "1 of 2 checks failed"):
        assert part in said
    verify.show(FINDINGS[:1], False, 3.2, "local")
    assert "it works" in capsys.readouterr().out


def test_for_machines():
    document = json.loads(verify.as_document(Facts("local", "http://g"), FINDINGS, True, 3.21))
    assert document["verdict"] == "failed"
    assert document["findings"][1]["advice"] == "see the logs"
    assert document["facts"]["gateway"] == "http://g"


def test_it_does_not_load_torch():
    program = "import sys, scripts.verify; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
