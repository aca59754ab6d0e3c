"""Whether the account may have another certificate, and CloudFront's is there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "certificates"
# Names of ACM's quotas (AWS Certificate Manager User Guide, "Quotas"): those that are, those of a year.
EVER, YEAR = "ACM certificates", "ACM certificates created in last 365 days"
OF_CLOUDFRONT = "us-east-1"


class Facts(msgspec.Struct, frozen=True):
    """Numbers of certificates and their quotas; `cloudfront` is the state of its certificate, None where it is not."""

    quotas: dict[str, float] = {}
    numbers: dict[str, int] = {}
    cloudfront: str | None = None
    names: list[str] = []


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    edge = wanted.config.edge
    if edge.host is None:
        return Facts()
    quotas: dict[str, float] = {}
    for page in cloud.client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="acm"):
        quotas |= {one["QuotaName"]: one["Value"] for one in page["Quotas"]}
    pages = cloud.client("acm").get_paginator("list_certificates").paginate()
    found = [one for page in pages for one in page["CertificateSummaryList"]]
    since = datetime.now(UTC) - timedelta(days=365)
    young = [one for one in found if one.get("CreatedAt") and one["CreatedAt"] > since]
    numbers = {EVER: len(found), YEAR: len(young)}
    if edge.cloudfront is None:
        return Facts(quotas, numbers)
    ours = _described(cloud, edge.cloudfront.certificate_arn)
    return Facts(quotas, numbers, ours.get("Status"), ours.get("SubjectAlternativeNames", []))


def _described(cloud: Cloud, arn: str) -> dict[str, Any]:
    acm = cloud.client("acm", OF_CLOUDFRONT)
    try:
        found: dict[str, Any] = acm.describe_certificate(CertificateArn=arn)["Certificate"]
    except acm.exceptions.ResourceNotFoundException:
        return {}
    return found


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    edge = wanted.config.edge
    if edge.host is None:
        yield Finding(NAME, "ok", "no edge.host is wanted")
        return
    for name, number in facts.numbers.items():
        quota = facts.quotas.get(name)
        if quota is not None and number + 1 > quota:
            advice = "ask for more in Service Quotas, or delete those that nothing uses"
            yield Finding(NAME, "fault", f"{name}: {quota:.0f}, and there are {number}", advice)
        else:
            yield Finding(NAME, "ok", f"{name}: {number} of {'an unlisted quota' if quota is None else f'{quota:.0f}'}")
    if edge.cloudfront:
        yield _of_cloudfront(edge.host, edge.cloudfront.certificate_arn, facts)


def _of_cloudfront(host: str, arn: str, facts: Facts) -> Finding:
    wildcard = f"*.{host.partition('.')[2]}"
    if facts.cloudfront != "ISSUED":
        found = f"edge.cloudfront.certificateArn {arn} is {facts.cloudfront or 'not there'}"
        return Finding(NAME, "fault", found, f"have one of {host} issued in {OF_CLOUDFRONT}, and name it")
    if host not in facts.names and wildcard not in facts.names:
        return Finding(NAME, "fault", f"{arn} is of {', '.join(facts.names)}", f"name one of {host}")
    return Finding(NAME, "ok", f"CloudFront's certificate is issued, and of {host}")


CHECK = Check(
    NAME,
    "ACM has room for a certificate, of all and of a year; CloudFront's is issued and of edge.host",
    ("acm:ListCertificates", "acm:DescribeCertificate", "servicequotas:ListServiceQuotas"),
    gather,
    judge,
)
