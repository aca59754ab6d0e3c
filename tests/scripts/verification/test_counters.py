"""Reading /metrics, and what grew between two looks."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from scripts.verification.counters import START, growth, key, restarted, samples, total

A, B = key("kv_total", outcome="ok", transport="shm"), key("kv_total", outcome="failed", transport="shm")


def test_what_matters_is_read():
    registry = CollectorRegistry()
    Counter("diphase_kv_transfers", "", ["transport", "outcome"], registry=registry).labels("shm", "ok").inc(3)
    Histogram("diphase_kv_transfer_seconds", "", registry=registry).observe(0.5)
    Counter("vllm:prompt_tokens", "", registry=registry).inc()
    assert samples(generate_latest(registry).decode()) == {
        'diphase_kv_transfers_total{outcome="ok",transport="shm"}': 3.0,
        "diphase_kv_transfer_seconds_count": 1.0,
        "diphase_kv_transfer_seconds_sum": 0.5,
    }


def test_totals_take_the_samples_that_carry_the_labels():
    assert total({A: 3.0, B: 2.0, "kv_total_other": 9.0}, "kv_total") == 5.0
    assert total({A: 3.0, B: 2.0}, "kv_total", outcome="ok") == 3.0
    assert total({}, "kv_total") == 0.0


def test_growth_over_processes_and_restarts():
    before = {"x": {START: 1.0, A: 10.0}, "y": {START: 1.0, A: 5.0}, "gone": {A: 7.0}}
    after = {"x": {START: 1.0, A: 12.0}, "y": {START: 2.0, A: 3.0}, "new": {START: 2.0, A: 1.0}}
    assert growth(before, after, "kv_total", outcome="ok") == 2 + 3 + 1
    assert list(restarted(before, after)) == ["y"]
