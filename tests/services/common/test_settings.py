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


POD = {
    **{name: str(value) for name, value in WORKER.items()},
    "host": "0.0.0.0",
    "port": "8000",
    "probe_port": "8081",
    "tls_folder": "/etc/diphase/tls",
    "advertise_url": "https://10.1.2.3:8000",
    "scheduler_urls": "dns+https://scheduler:8000",
    "kv_url": "https://kv:8000",
    "kv_transport": "tcp",
    "kv_transfer_host": "10.1.2.3",
    "kv_transfer_port": "8002",
}


def pod(**changes: str) -> WorkerSettings:
    return WorkerSettings.from_environ({name.upper(): value for name, value in {**POD, **changes}.items()})


def test_a_pods_settings() -> None:
    settings = pod()
    assert WorkerSettings.from_environ(settings.to_environ()) == settings
    assert settings.tls_folder == Path("/etc/diphase/tls"), "whether it is there is seen where the role runs"
    assert pod(advertise_url="https://[fd00::7]:8000", kv_transfer_host="fd00::7").kv_transfer_host == "fd00::7"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"probe_port": "8000"}, "PROBE_PORT: 8000 is also PORT"),
        ({"kv_transfer_port": "8081"}, "KV_TRANSFER_PORT: 8081 is also PROBE_PORT"),
        ({"kv_transfer_port": "8000"}, "KV_TRANSFER_PORT: 8000 is also PORT"),
        ({"probe_port": "0"}, "PROBE_PORT: Input should be greater than or equal to 1"),
        ({"advertise_url": "http://10.1.2.3:8000"}, "ADVERTISE_URL: http://10.1.2.3:8000 has no TLS"),
        ({"scheduler_urls": "https://a:1,dns+http://scheduler:8000"}, "SCHEDULER_URLS: dns+http://scheduler:8000 has"),
        ({"kv_url": "http://kv:8000"}, "KV_URL: http://kv:8000 has no TLS although TLS_FOLDER is set: write https"),
        ({"advertise_url": "https://0.0.0.0:8000"}, "ADVERTISE_URL: nobody reaches 0.0.0.0: name this host's own"),
        ({"advertise_url": "https://[::]:8000"}, "ADVERTISE_URL: nobody reaches ::"),
        ({"kv_transfer_host": "0.0.0.0"}, "KV_TRANSFER_HOST: nobody reaches 0.0.0.0"),
        ({"advertise_url": "10.1.2.3:8000"}, "ADVERTISE_URL: '10.1.2.3:8000' is no base URL: write http://HOST:PORT"),
        ({"advertise_url": "https://10.1.2.3:80000"}, "ADVERTISE_URL: 'https://10.1.2.3:80000' is no base URL"),
        ({"advertise_url": "dns+https://me:8000"}, "ADVERTISE_URL: 'dns+https://me:8000' is no base URL"),
        ({"kv_url": "https://"}, "KV_URL: 'https://' is no base URL"),
        ({"scheduler_urls": "dns+https://scheduler"}, "SCHEDULER_URLS: 'dns+https://scheduler': write dns+http"),
        ({"scheduler_urls": "dns+https://scheduler:1/v1"}, "without a path"),
        ({"scheduler_urls": "srv+https://scheduler:1"}, "SCHEDULER_URLS: 'srv+https://scheduler:1' is no base URL"),
    ],
)
def test_what_does_not_fit_together_is_named(changes: dict[str, str], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        pod(**changes)
    assert told in str(caught.value)
    assert "Value error" not in str(caught.value)


def test_all_that_does_not_fit_is_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        pod(probe_port="8000", kv_url="http://kv:8000", kv_transfer_host="::")
    for name in ("PROBE_PORT", "KV_URL", "KV_TRANSFER_HOST"):
        assert name in str(caught.value)
