"""The picture of a region is what is declared, and says what waits for what."""

from __future__ import annotations

import pytest

from scripts.region_docs.declared import Declared
from scripts.region_docs.page import DOCS, page
from scripts.region_docs.picture import mermaid


def test_the_committed_picture_is_up_to_date() -> None:
    committed = (DOCS / "region.md").read_text(encoding="utf-8")
    assert committed == page(), "write it again with `python -m scripts.region_docs`"


@pytest.fixture
def resources() -> list[Declared]:
    return [
        Declared("diphase:aws:Network", "n", "stack", ()),
        Declared("aws:ec2/vpc:Vpc", "v", "n", ()),
        Declared("diphase:aws:Ways", "w", "n", ()),
        Declared("aws:ec2/route:Route", "r1", "w", ("v",)),
        Declared("aws:ec2/route:Route", "r2", "w", ("v",)),
        Declared("diphase:aws:Cluster", "c", "stack", ("r1",)),
        Declared("aws:eks/cluster:Cluster", "e", "c", ("r1", "gone")),
    ]


def test_a_box_holds_what_its_component_is_made_of(resources: list[Declared]) -> None:
    assert '    Network["<b>Network</b><br>Route × 2<br>Vpc"]' in mermaid(resources).splitlines()


def test_arrows_are_between_boxes_and_each_is_drawn_once(resources: list[Declared]) -> None:
    assert [line for line in mermaid(resources).splitlines() if "-->" in line] == ["    Network --> Cluster"]
