"""Settings travel through the environment unchanged, and what is wrong is named."""

from pathlib import Path

import pytest

from services.common.settings import GatewaySettings, SchedulerSettings, SettingsError, WorkerSettings

WORKER = {
    "instance": "decode-worker-0",
    "port": 9000,
    "phase": "decode",
    "model_path": Path("/models/m"),
    "model_name": "m",
    "advertise_url": "http://127.0.0.1:9000",
    "scheduler_urls": ("http://127.0.0.1:1", "http://127.0.0.1:2"),
    "kv_url": "http://127.0.0.1:3",
    "kv_socket": Path("/run/kv.sock"),
}


def test_round_trip() -> None:
    settings = WorkerSettings(**WORKER, decode_idle_wait_ms=7.5, exit_with_parent=True)
    environ = settings.to_environ()
    assert environ["DECODE_IDLE_WAIT_MS"] == "7.5"
    assert environ["SCHEDULER_URLS"] == "http://127.0.0.1:1,http://127.0.0.1:2"
    assert environ["EXIT_WITH_PARENT"] == "true"
    assert WorkerSettings.from_environ({**environ, "HOME": "/somewhere"}) == settings


def test_the_five_parameters_keep_their_names() -> None:
    worker = WorkerSettings(**WORKER, prefill_max_batch_tokens=64, decode_max_tokens=1, kv_ttl_seconds=1)
    assert {"PREFILL_MAX_BATCH_TOKENS", "DECODE_MAX_TOKENS", "KV_TTL_SECONDS"} <= worker.to_environ().keys()
    scheduler = SchedulerSettings(instance="scheduler-0", port=1, scheduler_max_queue=3)
    assert scheduler.to_environ()["SCHEDULER_MAX_QUEUE"] == "3"


def test_every_fault_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        GatewaySettings.from_environ({"PORT": "99999", "INSTANCE": "gateway-0", "SCHEDULER_URLS": ""})
    for name in ("PORT", "SCHEDULER_URLS", "MODEL_PATH", "GATEWAY_API_KEYS_FILE"):
        assert name in str(caught.value)


def test_an_empty_variable_counts_as_unset() -> None:
    environ = {**WorkerSettings(**WORKER).to_environ(), "LOG_LEVEL": ""}
    assert WorkerSettings.from_environ(environ).log_level == "info"
