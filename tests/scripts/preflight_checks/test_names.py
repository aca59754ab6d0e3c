"""Domain, certificates and buckets' names: judged from facts, gathered from moto."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError

from scripts.preflight_checks import buckets, certificates, domain, look
from scripts.preflight_checks.certificates import EVER, YEAR
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.domain import Zone
from scripts.preflight_checks.nameservers import name_servers, resolver
from scripts.preflight_checks.wanted import Wanted
from tests.scripts.preflight_checks.asked import ACCOUNT, OURS, REGION, judged, recorded, told, wanted
from tests.toolchain.aws.moto import Moto

HOST = {"edge.host": "llm.example.com", "edge.zoneId": "Z0123456789"}
SERVERS = ["ns-1.example.net", "ns-2.example.net"]


def zone(**changes: Any) -> domain.Facts:
    values = {"name": "example.com", "private": False, "servers": SERVERS, "asked": SERVERS}
    return domain.Facts(Zone(**{**values, **changes}))


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        (zone(), "ok", "llm.example.com lies in example.com"),
        (domain.Facts(), "fault", "there is no hosted zone Z0123456789"),
        (zone(private=True, asked=None), "fault", "is private"),
        (zone(name="ample.com"), "fault", "does not lie in ample.com"),
        (zone(asked=[]), "fault", "the world asks nobody for example.com"),
        (zone(asked=["ns.other.net"]), "fault", "let the parent of example.com name ns-1.example.net"),
        (zone(asked=SERVERS[:1]), "warning", "the world asks ns-1.example.net for"),
        (zone(asked=None), "warning", "DNS could not be asked"),
    ],
)
def test_a_domain_must_lead_to_its_zone(facts: domain.Facts, verdict: str, says: str) -> None:
    assert says in told(judged(domain.CHECK, facts, wanted(HOST)), verdict)


def test_without_a_host_nothing_is_asked() -> None:
    with recorded({}) as cloud:
        assert [one.verdict for one in look(domain.CHECK, cloud, wanted())] == ["ok"]
        assert [one.verdict for one in look(certificates.CHECK, cloud, wanted())] == ["ok"]


def test_zones_are_gathered(cloud: Cloud, server: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    assert domain.gather(cloud, wanted(HOST)) == domain.Facts()
    route53 = server.client("route53", REGION, ACCOUNT)
    made = route53.create_hosted_zone(Name="example.com", CallerReference="1")
    monkeypatch.setattr(domain, "name_servers", lambda name, _server: [name])
    name = made["HostedZone"]["Id"].rpartition("/")[2]
    asked = wanted(HOST).config
    edge = asked.edge.model_copy(update={"zone_id": name})  # moto's ids don't begin as AWS's do
    found = domain.gather(cloud, Wanted("test", asked.model_copy(update={"edge": edge}))).zone
    route53.close()
    assert found is not None
    assert (found.name, found.private, found.asked) == ("example.com", False, ["example.com"])
    assert found.servers == sorted(made["DelegationSet"]["NameServers"])


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, int]]:
    """A resolver with these answers, each after the question's number."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as served:
        served.bind(("127.0.0.1", 0))
        served.settimeout(20)

        def serve() -> None:
            for answer in answers:
                question, client = served.recvfrom(4096)
                served.sendto(question[:2] + answer.replace(b"?", question[12:]), client)

        thread = threading.Thread(target=serve)
        thread.start()
        yield served.getsockname()
        thread.join(20)
        assert not thread.is_alive()


HEAD = struct.Struct("!5H")
# The second name ends with a pointer to the domain in the question, as servers shorten it.
FIRST, SECOND = b"\4NS-1\7example\3net\0", b"\4ns-2\xc0\x0c"


def record(name: bytes) -> bytes:
    return b"\xc0\x0c" + struct.pack("!2HIH", 2, 1, 60, len(name)) + name


def test_name_servers_are_read_from_dns() -> None:
    with answering(HEAD.pack(0x8180, 1, 2, 0, 0) + b"?" + record(FIRST) + record(SECOND)) as resolver_:
        assert name_servers("example.com", resolver_) == ["ns-1.example.net", "ns-2.example.com"]


def test_a_name_that_is_not_there_has_none_and_a_resolver_that_fails_is_no_answer() -> None:
    with answering(HEAD.pack(0x8183, 1, 0, 0, 0) + b"?") as resolver_:
        assert name_servers("example.com", resolver_) == []
    failed = HEAD.pack(0x8182, 1, 0, 0, 0) + b"?"
    with answering(failed, failed) as resolver_:
        assert name_servers("example.com", resolver_) is None
    loop = HEAD.pack(0x8180, 1, 1, 0, 0) + b"?" + b"\xc0\x1d"
    with answering(loop, b"\0") as resolver_:
        assert name_servers("example.com", resolver_) is None
    assert name_servers("example.com", None) is None


def test_the_resolver_is_the_machines_own(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("# none\nsearch x\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n")
    assert resolver(tmp_path / "conf") == ("192.0.2.1", 53)
    assert resolver(tmp_path / "none") is None


ARN = f"arn:aws:acm:us-east-1:{ACCOUNT}:certificate/1"
CLOUDFRONT = wanted({**HOST, "edge.cloudfront": {"certificateArn": ARN}})
ROOM, NUMBERS = {EVER: 10.0, YEAR: 20.0}, {EVER: 9, YEAR: 3}


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        (certificates.Facts(ROOM, NUMBERS, "ISSUED", ["*.example.com"]), "ok", "CloudFront's certificate is issued"),
        (certificates.Facts(ROOM, {**NUMBERS, EVER: 10}, "ISSUED", []), "fault", f"{EVER}: 10, and there are 10"),
        (certificates.Facts(ROOM, {**NUMBERS, YEAR: 20}, "ISSUED", []), "fault", f"{YEAR}: 20, and there are 20"),
        (certificates.Facts(ROOM, NUMBERS, "EXPIRED", []), "fault", "is EXPIRED → have one of llm.example.com issued"),
        (certificates.Facts(ROOM, NUMBERS), "fault", "is not there"),
        (certificates.Facts(ROOM, NUMBERS, "ISSUED", ["x.org"]), "fault", "is of x.org → name one of llm.example.com"),
    ],
)
def test_certificates_need_room_and_cloudfront_its_own(facts: certificates.Facts, verdict: str, says: str) -> None:
    assert says in told(judged(certificates.CHECK, facts, CLOUDFRONT), verdict)


def test_certificates_are_gathered(server: Moto) -> None:
    acm = server.client("acm", REGION, ACCOUNT)
    arn = acm.request_certificate(DomainName="llm.example.com", ValidationMethod="DNS")["CertificateArn"]
    what = wanted({**HOST, "edge.cloudfront": {"certificateArn": arn}})
    quotas = [("list_service_quotas", {"Quotas": [{"QuotaName": EVER, "Value": 10.0}]})]
    with recorded({"service-quotas": quotas}) as cloud:  # which moto does not list
        cloud._clients[("acm", False, REGION)] = acm
        found = certificates.gather(cloud, what)
    assert (found.quotas, found.numbers) == ({EVER: 10.0}, {EVER: 1, YEAR: 1})
    assert (found.cloudfront is not None, found.names) == (True, ["llm.example.com"])


def test_names_of_buckets_must_be_free(cloud: Cloud, server: Moto) -> None:
    s3 = server.client("s3", REGION, ACCOUNT)
    weights, kv, *_ = wanted().buckets
    for name in (weights, kv):
        s3.create_bucket(Bucket=name)
    s3.put_bucket_tagging(Bucket=kv, Tagging={"TagSet": OURS})
    facts = buckets.gather(cloud, wanted())
    s3.close()
    assert list(facts.owners.values()) == ["account", "stack", "nobody", "nobody"]
    assert f"{weights} is there already, and not this stack's" in told(judged(buckets.CHECK, facts), "fault")


def test_names_that_others_have_are_a_fault() -> None:
    with recorded({"s3": []}) as cloud:
        s3 = cloud.client("s3")
        refused = ClientError(
            {"Error": {"Code": "403"}, "ResponseMetadata": {"HTTPStatusCode": 403}},
            "HeadBucket",  # as S3 answers
        )
        with patch.object(s3, "head_bucket", side_effect=refused):
            facts = buckets.gather(cloud, wanted())
    assert set(facts.owners.values()) == {"other"}
    assert "-weights is somebody else's" in told(judged(buckets.CHECK, facts), "fault")
    free = buckets.Facts({"a": "stack", "b": "nobody"})
    assert [one.verdict for one in judged(buckets.CHECK, free)] == ["ok"]
