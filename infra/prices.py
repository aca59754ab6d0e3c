"""What AWS asks for what a region has by the hour or month, in us-east-1, each price with its source. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from infra import hardware
from infra.hardware import monthly

REGION = "us-east-1"
VALKEY = "AWS Price List API, AmazonElastiCache, engine Valkey, read 2026-10-02"
PAGES = "AWS's pricing pages, 2026-12"
# Prices of `large`; the other sizes of these families are exact multiples of it in the same list.
LARGE = {
    "c5": 0.085,
    "c6a": 0.0765,
    "c6i": 0.085,
    "c7a": 0.10264,
    "c7i": 0.08925,
    "c8i": 0.09371,
    "m5": 0.096,
    "m5a": 0.086,
    "m6a": 0.0864,
    "m6i": 0.096,
    "m7a": 0.11592,
    "m7i": 0.1008,
    "m7i-flex": 0.09576,
    "m8a": 0.12172,
    "m8i": 0.10584,
    "r5": 0.126,
    "r6a": 0.1134,
    "r6i": 0.126,
    "r7a": 0.15215,
    "r7i": 0.1323,
    "r8i": 0.13892,
}
# ElastiCache's lists round each size by itself.
NODES = {
    "cache.m6g.large": 0.1192,
    "cache.m6g.xlarge": 0.2376,
    "cache.m7g.large": 0.1264,
    "cache.m7g.xlarge": 0.252,
    "cache.m7g.2xlarge": 0.5032,
    "cache.r6g.large": 0.1648,
    "cache.r6g.xlarge": 0.3288,
    "cache.r7g.large": 0.1752,
    "cache.r7g.xlarge": 0.3496,
    "cache.r7g.2xlarge": 0.6984,
    "cache.r7g.4xlarge": 1.396,
    "cache.r8g.large": 0.1756,
    "cache.r8g.xlarge": 0.3511,
    "cache.t4g.micro": 0.0128,
    "cache.t4g.small": 0.0256,
    "cache.t4g.medium": 0.052,
}


class Unpriced(ValueError):
    """There is no price for something; the message says for what, and where one is found."""


@dataclass(frozen=True)
class Price:
    """US dollars a month of one of something."""

    usd: float
    source: str


def _hourly(usd: float, page: str) -> Price:
    return Price(monthly(usd), f"{page}; {PAGES}")


CONTROL_PLANE = _hourly(0.10, "Amazon EKS pricing: cluster in standard support")
NAT_GATEWAY = _hourly(0.045, "Amazon VPC pricing: NAT gateway")
PUBLIC_IPV4 = _hourly(0.005, "Amazon VPC pricing: public IPv4 address")
ENDPOINT = _hourly(0.01, "AWS PrivateLink pricing: interface endpoint, in each zone")
BALANCER = _hourly(0.0225, "Elastic Load Balancing pricing: Application Load Balancer, without capacity units")
KEY = Price(1.0, f"AWS KMS pricing: key; {PAGES}")
WEB_ACL = Price(5.0, f"AWS WAF pricing: web ACL; {PAGES}")
WAF_RULE = Price(1.0, f"AWS WAF pricing: rule or group of rules; {PAGES}")
GRAFANA_EDITOR = Price(9.0, f"Amazon Managed Grafana pricing: editor who signs in during the month; {PAGES}")
# For an endpoint in AWS; HTTPS and an interval of ten seconds are features, one each.
HEALTH_CHECK = Price(0.50, f"Amazon Route 53 pricing: health check of an endpoint in AWS; {PAGES}")
HEALTH_FEATURE = Price(1.00, f"Amazon Route 53 pricing: optional feature of a health check; {PAGES}")


def instance(name: str) -> Price:
    """An instance on demand; raises Unpriced."""
    kind = hardware.INSTANCE_TYPES.get(name)
    if kind:
        if kind.usd_per_hour is None:
            raise Unpriced(f"{name}: no on-demand price is listed")
        return Price(monthly(kind.usd_per_hour), hardware.PRICES)
    family, _, size = name.partition(".")
    times = _times(size)
    if family not in LARGE or times is None:
        raise Unpriced(f"{name}: not in infra/prices.py; see Amazon EC2 on-demand pricing")
    return Price(monthly(LARGE[family] * times), hardware.PRICES)


def _times(size: str) -> int | None:
    """How many `large` a size is: xlarge 2, 4xlarge 8; None where it is none of the kind."""
    if size == "large":
        return 1
    number = size.removesuffix("xlarge")
    if number == size or not (number == "" or number.isdecimal()):
        return None
    return 2 * int(number or 1)


def valkey(node_type: str) -> Price:
    """A node of ElastiCache for Valkey; raises Unpriced."""
    if node_type not in NODES:
        raise Unpriced(f"{node_type}: not in infra/prices.py; see Amazon ElastiCache pricing, Valkey")
    return Price(monthly(NODES[node_type]), VALKEY)


def disk(gib: float, iops: int = 3000, mib_s: int = 125) -> Price:
    """A gp3 volume: 3000 IOPS and 125 MiB/s are in the price of the space."""
    usd = 0.08 * gib + 0.005 * max(0, iops - 3000) + 0.04 * max(0, mib_s - 125)
    return Price(usd, f"Amazon EBS pricing: gp3; {PAGES}")


def lustre(gib: int, mb_s_per_tib: int) -> Price:
    """A file system of FSx for Lustre, persistent SSD."""
    each = {125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.6}[mb_s_per_tib]
    return Price(each * gib, f"Amazon FSx for Lustre pricing: persistent SSD by throughput; {PAGES}")
