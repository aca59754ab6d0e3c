"""The stack's own certificates, over years of a clock that the tests turn."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.kubernetes.authority import SETTLE, Held, Pair, Wanted, due, renewed

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
WANTED = Wanted(
    {"gateway": ["diphase.internal", "gateway.d"], "kv": ["diphase.internal", "10.0.0.1"]}, 900 * DAY, 90 * DAY
)


def read(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def trusts(verifier: Held, shown: Pair, now: datetime) -> bool:
    """Whether a role that holds `verifier` accepts a certificate that is shown to it."""
    leaf = read(shown.certificate)
    for authority in (read(pair.certificate) for pair in verifier.authorities):
        if authority.subject == leaf.issuer and authority.not_valid_after_utc > now:
            leaf.verify_directly_issued_by(authority)
            return leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc
    return False


def test_at_first_all_is_made_and_then_nothing_is_due() -> None:
    held = renewed(Held(), WANTED, NOW)
    assert len(held.authorities) == 1
    assert held.owners.keys() == {"gateway", "kv"}
    assert not due(held, WANTED, NOW)
    assert not due(held, WANTED, NOW + 59 * DAY)


def test_a_third_before_the_end_each_is_renewed_and_no_other() -> None:
    held = renewed(Held(), WANTED, NOW)
    changed = Wanted({**WANTED.owners, "kv": ["diphase.internal", "kv.d"]}, WANTED.ca_life, WANTED.life)
    assert due(held, changed, NOW + DAY).signed == ["kv"]
    later = renewed(held, changed, NOW + 40 * DAY)
    assert later.owners["gateway"] == held.owners["gateway"]
    todo = due(later, changed, NOW + 61 * DAY)
    assert (todo.signed, todo.new_authority) == (["gateway"], False)


def test_who_is_not_wanted_any_more_loses_its_certificate() -> None:
    held = renewed(Held(), WANTED, NOW)
    fewer = Wanted({"kv": WANTED.owners["kv"]}, WANTED.ca_life, WANTED.life)
    assert renewed(held, fewer, NOW).owners == {"kv": held.owners["kv"]}


def test_a_rotation_takes_three_steps() -> None:
    old = renewed(Held(), WANTED, NOW)
    wanted = Wanted(WANTED.owners, WANTED.ca_life, WANTED.life, rotation=1)
    now = NOW + DAY
    trusted = renewed(old, wanted, now)
    assert (len(trusted.authorities), trusted.owners) == (2, old.owners)
    assert not due(trusted, wanted, now + SETTLE / 2), "nobody may show a certificate that others cannot know yet"
    now += SETTLE
    signed = renewed(trusted, wanted, now)
    assert (len(signed.authorities), signed.owners.keys() & old.owners.keys()) == (2, {"gateway", "kv"})
    assert all(signed.owners[name] != old.owners[name] for name in old.owners)
    assert not due(signed, wanted, now + SETTLE / 2)
    ended = renewed(signed, wanted, now + SETTLE)
    assert ended.authorities == signed.authorities[1:]
    assert not due(ended, wanted, now + DAY)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30 * 24 * 60), st.booleans()), min_size=2, max_size=12))
def test_whenever_up_is_run_every_pair_of_roles_gets_along(steps: list[tuple[int, bool]]) -> None:
    """A pod may hold what was current at any time since SETTLE ago: old and new ones trust each other."""
    wanted = Wanted(WANTED.owners, 200 * DAY, 90 * DAY)
    now = NOW
    history = [(now, renewed(Held(), wanted, now))]
    for minutes, rotate in steps:
        now += timedelta(minutes=minutes)
        wanted = Wanted(wanted.owners, wanted.ca_life, wanted.life, wanted.rotation + rotate)
        history.append((now, renewed(history[-1][1], wanted, now)))
        # What was replaced less than SETTLE ago may still be in use somewhere.
        replaced = [at for at, _ in history[1:]] + [now + DAY]
        in_use = [held for until, (_, held) in zip(replaced, history, strict=True) if until > now - SETTLE]
        for one in in_use:
            for other in in_use:
                for shown in other.owners.values():
                    assert trusts(one, shown, now)


def test_an_expired_authority_is_replaced_at_once() -> None:
    held = renewed(Held(), WANTED, NOW)
    late = renewed(held, WANTED, NOW + 1000 * DAY)
    assert len(late.authorities) == 1
    assert late.authorities != held.authorities
    assert trusts(late, late.owners["kv"], NOW + 1000 * DAY)


@pytest.mark.parametrize("name", ["diphase.internal", "10.0.0.1"])
def test_the_standard_librarys_tls_takes_them(tmp_path: Path, name: str) -> None:
    held = renewed(Held(), WANTED, datetime.now(UTC))
    (tmp_path / "crt").write_text(held.owners["kv"].certificate)
    (tmp_path / "key").write_text(held.owners["kv"].key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.create_default_context(cadata=held.trusted)
    for context in (server, client):
        context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    server.load_verify_locations(cadata=held.trusted)
    server.verify_mode = ssl.CERT_REQUIRED
    shake(server, client, name)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A whole handshake in memory; raises SSLError where either side refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server, server_hostname=name), server.wrap_bio(to_server, to_client, True)]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert all(end.version() == "TLSv1.3" for end in ends)
    assert ends[1].getpeercert()
