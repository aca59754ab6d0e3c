"""Certificates that change while they are used: what is good is taken, what is not is left, and told once."""

from __future__ import annotations

import datetime
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from services.common.metrics import REGISTRY
from services.common.settings import SettingsError
from services.common.tls import Certificates, Use
from tests.services.common.certificates import DAY, Authority, mount, write


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.tls.CHECK_SECONDS", 0.0)


def loads(outcome: str, use: Use = "internal") -> float:
    return REGISTRY.get_sample_value("diphase_certificate_loads_total", {"certificate": use, "outcome": outcome}) or 0


def expiry(use: Use = "internal") -> float:
    value = REGISTRY.get_sample_value("diphase_certificate_expiry_timestamp_seconds", {"certificate": use})
    assert value is not None
    return value


def shown(certificates: Certificates) -> bytes:
    """The certificate that a new handshake shows, as PEM."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificates.server.wrap_bio(to_server, to_client, server_side=True)
    client = anybody.wrap_bio(to_client, to_server)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der).encode()


@pytest.mark.parametrize("put", [mount, write], ids=["a Secret that is swapped", "files that are written over"])
def test_a_new_handshake_uses_new_files(tmp_path: Path, put: Callable[[Path, dict[str, bytes]], Path]) -> None:
    authority = Authority()
    first, second = authority.internal(), authority.internal(life=2 * DAY)
    certificates = Certificates("internal", put(tmp_path / "tls", first))
    client, used = certificates.client(), loads("used")
    assert (shown(certificates), certificates.generation) == (first["tls.crt"], 1)
    put(tmp_path / "tls", second)
    assert (shown(certificates), certificates.generation) == (second["tls.crt"], 2)
    assert certificates.client() is not client
    assert loads("used") == used + 1
    assert expiry() == x509.load_pem_x509_certificate(second["tls.crt"]).not_valid_after_utc.timestamp()
    shown(certificates)
    assert certificates.generation == 2, "it was read once"


def test_what_was_seen_lately_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.common.tls.CHECK_SECONDS", 3600.0)
    authority = Authority()
    certificates = Certificates("internal", mount(tmp_path / "tls", authority.internal()))
    mount(tmp_path / "tls", authority.internal())
    certificates.current()
    assert certificates.generation == 1


STRANGER = Authority("a stranger")


def broken_states(folder: Path, fresh: dict[str, bytes]) -> list[Callable[[], object]]:
    """Ways in which a folder can be wrong for a while."""
    garbage = dict.fromkeys(fresh, b"garbage")
    return [
        lambda: write(folder, garbage),
        lambda: write(folder, {"tls.crt": fresh["tls.crt"]}),  # the key is still the old one
        lambda: write(folder, {"tls.crt": fresh["tls.crt"][:300], "tls.key": fresh["tls.key"]}),
        lambda: write(folder, {**fresh, "ca.crt": fresh["ca.crt"][:-40]}),
        lambda: write(folder, {**fresh, "ca.crt": b""}),
        lambda: write(folder, {**fresh, "ca.crt": STRANGER.pem}),
        lambda: (folder / "tls.key").unlink(),
        lambda: [path.unlink() for path in folder.iterdir()],
    ]


@pytest.mark.parametrize("state", range(8))
def test_what_cannot_be_used_is_left_and_told_once(tmp_path: Path, state: int) -> None:
    authority, folder = Authority(), tmp_path / "tls"
    first, second = authority.internal(), authority.internal()
    certificates = Certificates("internal", write(folder, first))
    refused = loads("refused")
    broken_states(folder, second)[state]()
    with structlog.testing.capture_logs() as said:
        for _ in range(3):
            assert shown(certificates) == first["tls.crt"]
    assert [line["event"] for line in said] == ["certificate_refused"]
    assert str(folder) in said[0]["reason"]
    assert loads("refused") == refused + 1
    assert certificates.fault() is None
    write(folder, second)
    assert shown(certificates) == second["tls.crt"]


def test_two_authorities_overlap(tmp_path: Path) -> None:
    """The order of a rotation of the CA: trust both, show the new one, trust the new one alone."""
    old, new = Authority("old"), Authority("new")
    certificates = Certificates("internal", mount(tmp_path / "tls", old.internal()))
    for files in (old.internal(new), new.internal(old), new.internal()):
        mount(tmp_path / "tls", files)
        assert shown(certificates) == files["tls.crt"]
    assert [ca["subject"] for ca in certificates.client().get_ca_certs()] == [((("commonName", "new"),),)]


def test_an_expired_certificate_is_told_and_its_successor_taken(tmp_path: Path) -> None:
    authority = Authority()
    expired = authority.internal(life=-datetime.timedelta(minutes=5))
    certificates = Certificates("internal", mount(tmp_path / "tls", expired))
    fault = certificates.fault()
    assert fault is not None
    assert "expired 30" in fault
    assert expiry() < time.time()
    mount(tmp_path / "tls", authority.internal())
    assert certificates.fault() is None
    assert expiry() > time.time()


WRONG_AT_START: dict[str, tuple[Callable[[Authority], dict[str, bytes]], str]] = {
    "nothing": (lambda _: {}, "cannot read .*tls.crt: No such file"),
    "no CA": (lambda ca: ca.issue("diphase.internal"), "cannot read .*ca.crt: No such file"),
    "another's key": (
        lambda ca: {**ca.internal(), "tls.key": ca.internal()["tls.key"]},
        "not a PEM certificate and its key: .*mismatch",
    ),
    "another CA": (lambda ca: {**ca.internal(), "ca.crt": STRANGER.pem}, "not be accepted: unable to get local issuer"),
    "another name": (
        lambda ca: {**ca.issue("gateway.example"), "ca.crt": ca.pem},
        "not be accepted: .*mismatch.*'diphase.internal'",
    ),
    "for servers alone": (
        lambda ca: {
            **ca.issue("diphase.internal", usage=[x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]),
            "ca.crt": ca.pem,
        },
        "not be accepted: unsuitable certificate purpose",
    ),
}


@pytest.mark.parametrize("kind", WRONG_AT_START)
def test_what_is_wrong_at_the_start_is_said(tmp_path: Path, kind: str) -> None:
    files, message = WRONG_AT_START[kind]
    with pytest.raises(SettingsError, match=f"^TLS_FOLDER: .*{message}.*it takes tls.crt, tls.key, ca.crt$"):
        Certificates("internal", write(tmp_path / "tls", files(Authority())))


def test_a_locked_key_does_not_ask_the_terminal(tmp_path: Path) -> None:
    files = Authority().internal()
    locked = serialization.load_pem_private_key(files["tls.key"], None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(SettingsError, match="not a PEM certificate and its key"):
        Certificates("internal", write(tmp_path / "tls", {**files, "tls.key": locked}))


def test_the_edge_needs_no_authority(tmp_path: Path) -> None:
    authority = Authority()
    first, second = authority.issue("api.example"), authority.issue("api.example", life=3 * DAY)
    certificates = Certificates("edge", mount(tmp_path / "tls", first))
    assert shown(certificates) == first["tls.crt"]
    mount(tmp_path / "tls", second)
    assert shown(certificates) == second["tls.crt"]
    assert expiry("edge") == x509.load_pem_x509_certificate(second["tls.crt"]).not_valid_after_utc.timestamp()
    with pytest.raises(SettingsError, match=r"^GATEWAY_TLS_FOLDER: cannot read .*it takes tls.crt, tls.key$"):
        Certificates("edge", tmp_path / "nowhere")


def test_without_a_folder_there_is_no_tls() -> None:
    assert Certificates.of("internal", None) is None
