"""docs/aws.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from infra.config import StackConfig
from infra.config.aws.subnets import subnets
from tests.infra.aws.terraform import Provider
from tests.infra.aws.test_network import declared
from tests.infra.aws.test_security_groups import rules

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "aws.md").read_text()


def test_its_table_of_ports_is_what_is_declared(provider: Provider) -> None:
    graph = declared(provider, lustre=True)
    found = set()
    for source, target, protocol, first, last in {*rules(graph, "Ingress"), *rules(graph, "Egress")}:
        ports = "everything" if protocol == "-1" else f"{protocol} {first}" + (f"-{last}" if last != first else "")
        found.add((source, target, ports))
    table = PAGE.partition("| from | to | what | why |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    assert len(rows) == len(found)
    assert {(source, target, what) for source, target, what, _ in rows} == found
    assert all(why for *_, why in rows)


def test_its_picture_has_the_subnets_as_they_are() -> None:
    network = StackConfig.parse({"target": "local", "network": {"zones": ["us-east-1a", "us-east-1b"]}}).network
    assert network.cidr in PAGE
    assert network.pod_cidr in PAGE
    for subnet in subnets(network):
        assert re.search(rf"│ {subnet.kind} +/{subnet.cidr.partition('/')[2]} ", PAGE), subnet


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (DOCS / target).exists(), target
