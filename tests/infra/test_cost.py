"""The bill of a region from its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from infra import cost, prices
from infra.cost import Bill
from infra.hardware import INSTANCE_TYPES, monthly
from tests.infra.aws.region import config


def bill(changes: dict[str, Any] | None = None, *, serving: bool = False) -> Bill:
    return cost.bill(config(changes or {}, serving=serving))


def counts(found: Bill) -> dict[str, int]:
    return {line.what: line.count for line in found.lines}


def test_nodes_are_most_of_it_and_each_line_has_a_source() -> None:
    found = bill()
    gpus = sum(INSTANCE_TYPES[name].usd_per_hour or 0 for name in ("p5.48xlarge", "p5en.48xlarge"))
    assert 0.95 < monthly(gpus) / found.usd < 1
    assert all(line.price.source and line.usd > 0 for line in found.lines)


def test_a_nodes_disk_costs_by_its_size_and_by_what_exceeds_the_included_rates() -> None:
    assert prices.disk(100).usd == pytest.approx(8.0)
    assert prices.disk(500, iops=4000, mib_s=1000).usd == pytest.approx(40 + 5 + 35)


@pytest.mark.parametrize(("nat", "gateways"), [("zone", 3), ("one", 1), ("none", 0)])
def test_each_way_out_has_an_address(nat: str, gateways: int) -> None:
    found = counts(bill({"network.nat": nat}))
    assert found.get("NAT gateway", 0) == found.get("public IPv4 address", 0) == gateways


def test_an_endpoint_costs_in_each_zone() -> None:
    assert counts(bill({"network.endpoints": ["ec2", "sts"]}))["interface endpoint in a zone"] == 6


def test_a_region_without_images_has_no_balancer() -> None:
    edge = {"edge": {"host": "llm.example.com", "zoneId": "Z0123456789EXAMPLE", "routing": "latency"}}
    served, alone = counts(bill(edge, serving=True)), counts(bill(edge))
    assert served["Application Load Balancer"] == 1
    assert served["public IPv4 address"] == alone["public IPv4 address"] + 3
    assert served["rule of the web ACL"] == 3
    assert served["health check"] == 1
    assert "Application Load Balancer" not in alone


def test_the_most_is_with_every_pool_at_its_max() -> None:
    found = bill({"capacity.decode.max": 3})
    node = next(line for line in found.lines if line.what.startswith("node of decode"))
    assert (node.count, node.most) == (1, 3)
    system = prices.instance("m7i.xlarge").usd + prices.disk(200, 3000, 250).usd
    disk = prices.disk(500, 4000, 1000).usd
    assert found.most_usd - found.usd == pytest.approx(2 * (node.price.usd + disk) + 4 * system)


def test_what_has_no_price_is_named_and_not_guessed() -> None:
    found = bill(
        {"capacity.decode.instanceType": "p5e.48xlarge", "storage": {"valkey": {"nodeType": "cache.x9.large"}}}
    )
    assert any("p5e.48xlarge: no on-demand price" in one for one in found.uncounted)
    assert any("cache.x9.large" in one for one in found.uncounted)
    assert not any("Valkey node" in line.what for line in found.lines)


@pytest.mark.parametrize(
    ("name", "usd_per_hour"), [("m7i.large", 0.1008), ("m7i.xlarge", 0.2016), ("c7i.12xlarge", 2.142)]
)
def test_sizes_of_a_family_are_multiples(name: str, usd_per_hour: float) -> None:
    assert prices.instance(name).usd == pytest.approx(monthly(usd_per_hour))


@pytest.mark.parametrize("name", ["m7i.metal", "m7i.medium", "z9.large", "m7i"])
def test_an_unknown_instance_type_is_refused(name: str) -> None:
    with pytest.raises(prices.Unpriced, match="on-demand pricing"):
        prices.instance(name)


def test_another_region_says_whose_prices_it_has() -> None:
    zones = [f"eu-west-1{letter}" for letter in "abc"]
    other = config(
        {
            "region.name": "eu-west-1",
            "network.zones": zones,
            "capacity.prefill.zone": zones[0],
            "capacity.decode.zone": zones[0],
        }
    )
    assert any("us-east-1's prices" in note for note in cost.notes(cost.bill(other), other))
    assert not any("us-east-1's prices" in note for note in cost.notes(bill(), config()))
