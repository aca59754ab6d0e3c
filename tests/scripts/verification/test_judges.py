"""What the judges find in a recorded run, and in runs that differ from it in one thing."""

from pathlib import Path

import msgspec
import pytest

from scripts.verification.facts import Certificate, Facts, Objectives, Probe
from scripts.verification.judges import JUDGES, judge

RECORDED = (Path(__file__).parent / "recorded_run.json").read_bytes()
EASY = Objectives(ttft_seconds=60.0, decode_tokens_per_second=0.1)
PULLED = 'diphase_kv_transfer_bytes_total{direction="pull",transport="shm"}'
OK = 'diphase_kv_transfers_total{outcome="ok",transport="shm"}'
FAILED = 'diphase_kv_transfers_total{outcome="failed",transport="shm"}'


@pytest.fixture
def facts():
    return msgspec.json.decode(RECORDED, type=Facts)


def found(facts, check, objectives=EASY):
    """The one finding of that name."""
    (finding,) = [finding for finding in judge(facts, objectives) if finding.check == check]
    return finding


def streamed(facts, prompt):
    return next(answer for answer in facts.answers if answer.prompt == prompt and answer.streamed)


def test_the_recorded_run_is_good(facts):
    findings = judge(facts, EASY)
    assert {finding.verdict for finding in findings} == {"ok", "notice"}
    assert [finding.check for finding in findings if finding.verdict == "notice"] == ["TLS"]
    for check in ("gateway-0", "scheduler-1 knows", "models", "short prompt", "streaming", "decode", "KV handoff"):
        assert found(facts, check).verdict == "ok"
    assert "8 transfers over shm" in found(facts, "KV handoff").found


def test_whatever_is_not_ok_comes_with_advice(facts):
    facts.roles[0].health = Probe(None, "refused")
    facts.answers[0].status = None
    facts.refusals[0].status = 200
    facts.after["decode-worker-0"] = facts.before["decode-worker-0"]
    findings = [finding for finding in judge(facts, Objectives(0.001, 512, 1000.0)) if finding.verdict != "ok"]
    assert len(findings) >= 7
    assert all(finding.advice for finding in findings)


def test_nothing_known_is_no_crash():
    assert [finding.check for finding in judge(Facts("s", "http://10.0.0.1"), EASY)] == ["TLS", "models"]
    assert len(JUDGES) == len({one.__name__ for one in JUDGES})


@pytest.mark.parametrize(
    ("health", "ready", "said"),
    [
        (Probe(None, "no connection"), Probe(None), "no answer at http"),
        (Probe(503, '{"status":"fail","reason":"no step"}'), Probe(503), "not healthy: no step"),
        (Probe(200), Probe(503, '{"status":"fail","reason":"loading"}'), "not ready: loading"),
        (Probe(200), Probe(503, "<html>"), "not ready: <html>"),
    ],
)
def test_roles(facts, health, ready, said):
    facts.roles[0].health, facts.roles[0].ready = health, ready
    finding = found(facts, facts.roles[0].name)
    assert finding.verdict == "failed"
    assert said in finding.found


@pytest.mark.parametrize("state", ["absent", "draining", None])
def test_a_worker_that_one_replica_does_not_know_as_live(facts, state):
    role = next(role for role in facts.roles if role.name == "scheduler-1")
    role.workers.pop("decode-worker-0")
    if state:
        role.workers["decode-worker-0"] = state
    assert found(facts, "scheduler-0 knows").verdict == "ok"
    finding = found(facts, "scheduler-1 knows")
    assert finding.verdict == "failed"
    assert f"decode-worker-0 ({state or 'unknown'})" in finding.found
    role.workers = None
    assert found(facts, "scheduler-1 knows").verdict == "failed"


@pytest.mark.parametrize(("decode", "verdict"), [(1, "ok"), (0, "failed"), (2, "failed")])
def test_a_scheduler_that_only_shows_its_metrics_is_judged_by_numbers(facts, decode, verdict):
    role = next(role for role in facts.roles if role.name == "scheduler-1")
    role.workers, role.live = None, {"prefill": 1, "decode": decode}
    finding = found(facts, "scheduler-1 knows")
    assert finding.verdict == verdict
    assert f"{decode} of 1 decode workers live" in finding.found


@pytest.mark.parametrize(
    ("gateway", "certificate", "verdict", "said"),
    [
        ("http://127.0.0.1:1", None, "notice", "loopback"),
        ("http://localhost:1", None, "notice", "loopback"),
        ("http://api.example.com", None, "notice", "can be read on the way"),
        ("https://api.example.com", Certificate(80.0), "ok", "80 more days"),
        ("https://api.example.com", Certificate(3.0), "notice", "3 more days"),
        ("https://api.example.com", Certificate(fault="self-signed"), "failed", "self-signed"),
    ],
)
def test_tls(facts, gateway, certificate, verdict, said):
    facts.gateway, facts.certificate = gateway, certificate
    finding = found(facts, "TLS")
    assert finding.verdict == verdict
    assert said in finding.found


def test_models(facts):
    facts.models, facts.models_said = [], "401: invalid_api_key"
    assert found(facts, "models").found == "401: invalid_api_key"
    facts.models_said = ""
    assert found(facts, "models").verdict == "failed"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": None, "error": "timed out"}, "no answer: timed out"),
        ({"status": 503, "error": "no_healthy_worker"}, "503: no_healthy_worker"),
        ({"error": "engine_failed: in the middle"}, "in the middle"),
        ({"ended": False}, "broke off"),
        ({"finish_reason": None}, "finish_reason is None"),
        ({"text": ""}, "empty"),
        ({"text": "Par\ufffdis"}, "character was broken"),
        ({"completion_tokens": 0}, "usage is wrong"),
        ({"completion_tokens": 99}, "usage is wrong"),
        ({"prompt_tokens": 0}, "usage is wrong"),
        ({"finish_reason": "length"}, "it was cut after"),
        ({"text": "another text"}, "the streamed text is another"),
    ],
)
def test_answers(facts, change, said):
    answer = streamed(facts, "short")
    for name, value in change.items():
        setattr(answer, name, value)
    finding = found(facts, "short prompt")
    assert finding.verdict == "failed"
    assert said in finding.found
    assert found(facts, "long prompt").verdict == "ok"


def test_a_character_may_be_cut_only_by_the_limit(facts):
    for answer in facts.answers:
        if answer.prompt == "long":
            assert answer.finish_reason == "length"
            answer.text += "\ufffd"
    assert found(facts, "long prompt").verdict == "ok"


def test_a_stream_that_comes_in_one_piece(facts):
    answer = streamed(facts, "long")
    answer.first_at = answer.last_at
    assert found(facts, "streaming").verdict == "failed"
    assert "long" in found(facts, "streaming").found


def test_speed_is_held_against_the_objectives(facts):
    assert found(facts, "TTFT, short").verdict == "ok"
    strict = Objectives(ttft_seconds=0.001, decode_tokens_per_second=1e6)
    assert found(facts, "TTFT, short", strict).verdict == "failed"
    assert found(facts, "TTFT, long", strict).verdict == "notice"  # longer than what is promised
    assert found(facts, "decode", strict).verdict == "failed"
    for answer in facts.answers:
        answer.completion_tokens = min(answer.completion_tokens, 8)
        answer.finish_reason = "stop"
    assert found(facts, "decode", strict).verdict == "notice"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({PULLED: 0}, "0.0 MiB"),
        ({OK: 0}, "0 transfers over nothing"),
        ({OK: 3}, "for 8 answers"),
        ({FAILED: 1}, "1 failed"),
    ],
)
def test_kv_that_did_not_move(facts, change, said):
    before, after = facts.before["decode-worker-0"], facts.after["decode-worker-0"]
    for sample, grown in change.items():
        after[sample] = before.get(sample, 0.0) + grown
    finding = found(facts, "KV handoff")
    assert finding.verdict == "failed"
    assert said in finding.found


def test_kv_that_no_prefill_worker_served(facts):
    facts.after["prefill-worker-0"] = facts.before["prefill-worker-0"]
    assert found(facts, "KV handoff").verdict == "failed"


def test_a_prompt_that_decode_may_compute_itself_needs_no_transfer(facts):
    after = facts.after["decode-worker-0"]
    after[OK] -= 2
    after["diphase_local_prefill_total"] += 2
    finding = found(facts, "KV handoff")
    assert finding.verdict == "ok"
    assert "2 prompts computed at decode" in finding.found


def test_a_worker_whose_counters_cannot_be_read(facts):
    del facts.after["decode-worker-0"]
    assert "decode-worker-0" in found(facts, "KV handoff").found


def test_a_worker_that_restarted_counts_from_zero(facts):
    after = facts.after["decode-worker-0"]
    after["process_start_time_seconds"] += 60
    after[OK], after[PULLED] = 8.0, 1e6
    assert found(facts, "KV handoff").verdict == "ok"
    assert "decode-worker-0" in found(facts, "restarts").found


def test_leases(facts):
    assert found(facts, "leases").verdict == "ok"
    facts.after["prefill-worker-0"]["diphase_kv_leases_open"] = 2.0
    assert "2 open" in found(facts, "leases").found
    facts.after["prefill-worker-0"]['diphase_kv_leases_total{outcome="expired"}'] = 3.0
    assert "3 expired" in found(facts, "leases").found


def test_refusals(facts):
    assert found(facts, "refuses a wrong key").verdict == "ok"
    facts.refusals[0].status = 200
    assert found(facts, "refuses a wrong key").verdict == "failed"
    facts.refusals[1].said = ""  # the right status, but no error object
    assert found(facts, "refuses an unknown model").verdict == "failed"
