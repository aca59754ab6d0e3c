"""What a region costs a month, from its configuration alone: line by line, and what is not counted. Pure.

The configuration and not the resources: nodes of Karpenter, nodes' disks and the load balancer are made by others than
Pulumi, and cost most of it (docs/decisions/0048-prices-from-the-configuration.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from infra import prices
from infra.config import StackConfig
from infra.config.aws.capacity import GpuPool, Pool, PoolName, SystemPool
from infra.prices import Price, Unpriced

# What depends on use, and is on the bill beside the lines.
USES = (
    "data transfer: to the internet, between zones and regions, through NAT gateways and endpoints",
    "capacity units of the load balancer; requests that the firewall looks at",
    "S3: bytes, requests, replication; ECR: bytes, copies to other regions",
    "CloudWatch: log bytes, metrics, alarms, dashboards; SNS and SQS messages; budgets beyond the free ones",
    "samples of managed Prometheus, and their queries; Grafana's viewers",
    "volumes that pods claim; snapshots; backups of Valkey",
    "requests to KMS, Route 53 and Secrets Manager; CloudFront",
)
PURCHASES = {
    "onDemand": "",
    "reservation": ", reserved: the same price used or idle",
    "block": ", capacity block: paid ahead at its own price, here at that on demand",
    "spot": ", spot: usually less, here at the price on demand",
}


@dataclass(frozen=True)
class Line:
    """So many of something, each at a price; `most` is how many autoscaling may make of them."""

    what: str
    count: int
    most: int
    price: Price

    @property
    def usd(self) -> float:
        """US dollars a month of `count`."""
        return self.count * self.price.usd


@dataclass(frozen=True)
class Bill:
    """The lines of a region, and what has no price or depends on use."""

    region: str
    lines: list[Line]
    uncounted: list[str]

    @property
    def usd(self) -> float:
        """US dollars a month as it starts."""
        return sum(line.usd for line in self.lines)

    @property
    def most_usd(self) -> float:
        """US dollars a month with every pool at its most."""
        return sum(line.most * line.price.usd for line in self.lines)


def bill(config: StackConfig) -> Bill:
    """What the region of a stack costs a month; the stack's target is aws."""
    lines, uncounted = [Line("EKS control plane", 1, 1, prices.CONTROL_PLANE)], list(USES)
    for name, pool in {"system": config.capacity.system, **config.capacity.gpu_pools}.items():
        try:
            lines += _nodes(name, pool)
        except Unpriced as unpriced:
            uncounted.insert(0, f"nodes of the {name} pool: {unpriced}")
    lines += _network(config)
    try:
        node_type = config.storage.valkey.node_type
        nodes = 1 + config.storage.valkey.replicas
        lines.append(Line(f"Valkey node, {node_type}", nodes, nodes, prices.valkey(node_type)))
    except Unpriced as unpriced:
        uncounted.insert(0, f"nodes of Valkey: {unpriced}")
    lines += [*_storage(config), *_edge(config), *_monitoring(config)]
    return Bill(config.region.name or prices.REGION, [line for line in lines if line.most], uncounted)


def _nodes(name: PoolName | str, pool: Pool) -> Iterator[Line]:
    if isinstance(pool, GpuPool):
        kind, count, how = pool.instance_type, pool.nodes, PURCHASES[pool.purchase]
    else:
        assert isinstance(pool, SystemPool)
        kind, count, how = pool.instance_type, pool.min, ""
    disk = prices.disk(pool.disk_gib, pool.disk_iops, pool.disk_throughput)
    yield Line(f"node of {name}, {kind}{how}", count, pool.max, prices.instance(kind))
    yield Line(f"its disk, {pool.disk_gib} GiB gp3", count, pool.max, disk)


def _network(config: StackConfig) -> Iterator[Line]:
    zones = len(config.network.zones)
    ways_out = {"zone": zones, "one": 1, "none": 0}[config.network.nat]
    yield Line("NAT gateway", ways_out, ways_out, prices.NAT_GATEWAY)
    addresses = ways_out + (zones if config.edge.scheme == "internet-facing" and _balanced(config) else 0)
    yield Line("public IPv4 address", addresses, addresses, prices.PUBLIC_IPV4)
    endpoints = len(config.network.endpoints) * zones
    yield Line("interface endpoint in a zone", endpoints, endpoints, prices.ENDPOINT)


def _storage(config: StackConfig) -> Iterator[Line]:
    yield Line("KMS key", 1, 1, prices.KEY)
    wanted = config.storage.lustre
    if wanted:
        price = prices.lustre(wanted.capacity_gib, wanted.throughput)
        yield Line(f"FSx for Lustre, {wanted.capacity_gib} GiB at {wanted.throughput} MB/s a TiB", 1, 1, price)


def _balanced(config: StackConfig) -> bool:
    """Whether there is a load balancer: it stands before pods."""
    return config.serves and config.edge.host is not None


def _edge(config: StackConfig) -> Iterator[Line]:
    edge = config.edge
    if not _balanced(config):
        return
    yield Line("Application Load Balancer", 1, 1, prices.BALANCER)
    if edge.waf:
        rules = 3 if edge.waf.managed_rules else 1
        yield Line("web ACL", 1, 1, prices.WEB_ACL)
        yield Line("rule of the web ACL", rules, rules, prices.WAF_RULE)
    if edge.routing != "simple":
        features = 1 + (edge.health_seconds == 10)
        yield Line("health check", 1, 1, prices.HEALTH_CHECK)
        yield Line("its features: HTTPS, ten seconds", features, features, prices.HEALTH_FEATURE)


def _monitoring(config: StackConfig) -> Iterator[Line]:
    monitoring = config.monitoring
    if monitoring.kind == "managed":
        editors = len(monitoring.grafana_admins)
        yield Line("Grafana editor", editors, editors, prices.GRAFANA_EDITOR)
    elif monitoring.kind == "cluster":
        yield Line(f"volume of Prometheus, {monitoring.metric_gib} GiB gp3", 1, 1, prices.disk(monitoring.metric_gib))


def notes(bill: Bill, config: StackConfig) -> Iterator[str]:
    """What a reader must know of the prices."""
    if bill.region != prices.REGION:
        yield f"at {prices.REGION}'s prices: {bill.region} has its own, mostly higher"
    budget = config.monitoring.budget
    if budget and bill.most_usd > budget.usd:
        yield f"monitoring.budget.usd is {budget.usd:,.0f}: below what it may come to"
    for name, pool in config.capacity.gpu_pools.items():
        if pool.provisioner == "karpenter":
            yield f"nodes of {name} are made by Karpenter as pods ask for them, from {pool.min} to {pool.max}"
