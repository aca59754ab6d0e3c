"""The queries that scalers follow, asked of Prometheus' own engine: of load, of pods that come and go, of silence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.config.autoscaling import Scaled
from infra.kubernetes.signals import signals
from tests.infra.kubernetes.stacks import SCALED, plan
from tests.toolchain.kubernetes import debian

STEP = 5  # seconds between samples
NAMESPACE = "diphase-test"
END = "stale"  # what Prometheus notes when a pod is gone


@pytest.fixture(scope="module", autouse=True)
def promtool() -> None:
    try:
        debian.require(debian.METRICS)
    except debian.Unavailable as error:
        pytest.skip(str(error))


def query(role: Scaled, name: str) -> str:
    found = {one.name: one.query for one in signals(plan(**SCALED).config, NAMESPACE, role)}
    return found[name]


def series(metric: str, pod: str, **labels: str) -> str:
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f'{metric}{{namespace="{NAMESPACE}",pod="{pod}"{more}}}'


def judge(folder: Path, given: Mapping[str, str], *claims: tuple[str, int, float | None]) -> None:
    """Whether each query, so many seconds after the first sample, has the value claimed; None: no answer at all."""
    expected: list[dict[str, Any]] = [
        {
            "expr": expression,
            "eval_time": f"{seconds}s",
            "exp_samples": [] if value is None else [{"labels": "{}", "value": value}],
        }
        for expression, seconds, value in claims
    ]
    case = {
        "interval": f"{STEP}s",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "promql_expr_test": expected,
    }
    file = folder / "test.json"
    file.write_text(json.dumps({"rule_files": [], "evaluation_interval": f"{STEP}s", "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def near(expression: str, value: float) -> str:
    """A query that answers 1 where another's answer is within a tenth of a value."""
    return f"abs({expression} - {value}) < bool {value / 10}"


SILENT_SCHEDULERS = {
    series("diphase_scheduler_queued_tokens", "scheduler-a", phase=phase): "0x60" for phase in ("prefill", "decode")
} | {series("diphase_scheduler_queue_length", "scheduler-a", phase=phase): "0x60" for phase in ("prefill", "decode")}


def test_work_is_the_same_on_one_pod_and_on_two(tmp_path: Path) -> None:
    """Two pods that compute half of the time; then one of them goes and the other does all of it."""
    given = {
        series("diphase_engine_busy_seconds_total", "prefill-worker-a"): "0+2.5x24 65+5x36",
        series("diphase_engine_busy_seconds_total", "prefill-worker-b"): f"0+2.5x24 {END}",
    }
    busy = query("prefill", "busy")
    judge(tmp_path, given, *((near(busy, 1), at, 1) for at in range(100, 250, 10)))


def test_a_pod_that_has_ended_is_not_counted_beside_the_one_that_took_its_place(tmp_path: Path) -> None:
    given = {
        series("vllm:kv_cache_usage_perc", "decode-worker-a"): f"0.5x24 {END}",
        series("vllm:kv_cache_usage_perc", "decode-worker-b"): "0.5x24 1x36",
    }
    usage = query("decode", "kv_usage")
    judge(tmp_path, given, *((near(usage, 1), at, 1) for at in (100, 130, 150, 180, 240)))


def test_a_pod_that_is_born_changes_nothing(tmp_path: Path) -> None:
    given = {
        **SILENT_SCHEDULERS,
        series("vllm:num_requests_running", "decode-worker-a"): "8x60",
        series("vllm:num_requests_waiting", "decode-worker-a"): "0x60",
        series("vllm:num_requests_running", "decode-worker-b"): "_x30 0x30",
        series("vllm:num_requests_waiting", "decode-worker-b"): "_x30 0x30",
    }
    requests = query("decode", "requests")
    judge(tmp_path, given, *((requests, at, 8) for at in (100, 155, 160, 250)))


def test_what_waits_at_the_schedulers_is_load_too(tmp_path: Path) -> None:
    given = {
        series("diphase_queued_prompt_tokens", "prefill-worker-a"): "1000x60",
        series("diphase_scheduler_queued_tokens", "scheduler-a", phase="prefill"): "500x60",
        series("diphase_scheduler_queued_tokens", "scheduler-b", phase="prefill"): "250x60",
        series("diphase_scheduler_queued_tokens", "scheduler-b", phase="decode"): "9999x60",
    }
    judge(tmp_path, given, (query("prefill", "queued_tokens"), 200, 1750))


def test_a_burst_is_followed_by_its_mean_and_not_by_its_peak(tmp_path: Path) -> None:
    given = {series("diphase_gateway_inflight_requests", "gateway-a"): "0x20 120 0x60"}
    requests = query("gateway", "requests")
    judge(tmp_path, given, (f"{requests} <= bool 10", 110, 1), (requests, 200, 0))


@pytest.mark.parametrize(
    ("answers", "value"),
    [
        ({"0.5": "0+5x60", "1.0": "0+10x60", "2.0": "0+10x60", "+Inf": "0+10x60"}, 0.9),
        ({"0.5": "0x60", "1.0": "0x60", "2.0": "0x60", "60.0": "0+10x60", "+Inf": "0+10x60"}, 4),
        ({"0.5": "0x60", "1.0": "0x60", "2.0": "0x60", "+Inf": "0x60"}, 0),
        ({}, 0),
    ],
    ids=["within", "far beyond", "no requests now", "none ever"],
)
def test_a_latency_is_the_clients_and_bounded(tmp_path: Path, answers: dict[str, str], value: float) -> None:
    histogram = "gen_ai_server_time_to_first_token_seconds_bucket"
    given = {series(histogram, "gateway-a", le=le): values for le, values in answers.items()}
    given |= {series("diphase_gateway_inflight_requests", "gateway-a"): "1x60"}
    judge(tmp_path, given, (query("prefill", "ttft"), 200, value))


@pytest.mark.parametrize("role", ["gateway", "scheduler", "prefill", "decode"])
def test_silence_is_no_answer_and_not_zero(tmp_path: Path, role: Scaled) -> None:
    """Prometheus knows of another stack, and of nothing here."""
    given = {'diphase_gateway_inflight_requests{namespace="another",pod="gateway-a"}': "1x60"}
    for signal in signals(plan(**SCALED).config, NAMESPACE, role):
        judge(tmp_path, given, (signal.query, 200, None))
