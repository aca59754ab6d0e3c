"""Workers as they run in pods: certificates of the stack's own CA, KV by TCP inside TLS, schedulers found by DNS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.common.tls import CHECK_SECONDS
from tests.services.common.certificates import Authority
from tests.services.worker.fleet import Fleet, until

PROMPT = list(range(1000, 1150))
ROLES = ("kv", "scheduler", "prefill", "decode")


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory, model_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("pods"), model_path, pods=True)
    try:
        fleet.start_all()
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def fleet(pods: Fleet) -> Iterator[Fleet]:
    yield pods
    until("at rest", pods.at_rest)


def handed_over(fleet: Fleet, request_id: str) -> list[int]:
    """The tokens of an answer that both workers wrote."""
    first, handle = fleet.prefill(request_id, PROMPT, ignore_eos=True)
    rest = fleet.complete(
        "decode", request_id, prompt=[*PROMPT, first], output_tokens=1, kv_transfer_params=handle,
        max_tokens=7, ignore_eos=True,
    )  # fmt: skip
    assert rest.status_code == 200, rest.text
    fleet.release(request_id, handle["nonce"])
    return [first, *rest.json()["choices"][0]["token_ids"]]


def pulled(fleet: Fleet) -> float:
    return fleet.metric("decode", "diphase_kv_transfer_bytes_total", direction="pull", transport="tcp")


def test_kv_moves_inside_tls(fleet: Fleet) -> None:
    whole = fleet.complete("decode", "whole", prompt=PROMPT, max_tokens=8, ignore_eos=True).json()
    before = pulled(fleet)
    assert handed_over(fleet, "split") == whole["choices"][0]["token_ids"]
    assert pulled(fleet) > before
    workers = fleet.http.get(fleet.urls["scheduler"] + "/v1/workers").json()["workers"]
    assert {worker["url"] for worker in workers} == {fleet.urls["prefill"], fleet.urls["decode"]}


@pytest.mark.parametrize("role", ROLES)
def test_a_port_without_tls_has_probes_and_nothing_else(fleet: Fleet, role: str) -> None:
    probes = fleet.probes[role]
    assert [fleet.http.get(probes + path).status_code for path in ("/health", "/ready", "/metrics")] == [200] * 3
    for path in ("/v1/workers", "/v1/models", "/v1/completions", "/v1/kv/release"):
        assert fleet.http.get(probes + path).status_code == 404
    with pytest.raises(httpx.TransportError), httpx.Client() as plain:
        plain.get(fleet.urls[role].replace("https", "http") + "/health")
    with pytest.raises(httpx.TransportError), httpx.Client(verify=False) as stranger:  # noqa: S501
        stranger.get(fleet.urls[role] + "/health")


def test_certificates_change_from_one_authority_to_another(fleet: Fleet) -> None:
    """One role after the other, with a request after each change; none fails, and no role restarts."""
    old, new = fleet.authority, Authority("new")
    before = handed_over(fleet, "before")
    pids = {name: process.pid for name, process in fleet.processes.items()}
    for step, (authority, trusted) in enumerate([(old, [new]), (new, [old]), (new, [])]):
        for role in ROLES:
            fleet.certify(role, authority=authority, trusted=trusted)
            assert handed_over(fleet, f"{step}-{role}") == before
        time.sleep(CHECK_SECONDS)
        for role in ROLES:
            assert fleet.http.get(fleet.probes[role] + "/ready").status_code == 200
            assert fleet.metric(role, "diphase_certificate_loads_total", certificate="internal", outcome="used") > step
        assert handed_over(fleet, f"{step}") == before
    assert {name: process.pid for name, process in fleet.processes.items()} == pids
    fleet.certify(authority=old, trusted=[new])
    with pytest.raises(httpx.TransportError):
        fleet.http.get(fleet.urls["prefill"] + "/health")
    fleet.certify(authority=new)
