"""Which network interfaces an instance type starts with: one for addresses, and its EFA interfaces. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from infra.hardware import INSTANCE_TYPES

# The network card of the first EFA interface, where that is not card 0, which everything else has it on (Amazon EC2
# User Guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards": card 0 of a P6-B300
# takes ENA only).
FIRST_CARD = {"p6-b300.48xlarge": 1}


@dataclass(frozen=True)
class Interface:
    """Where an interface is attached. One of kind `efa-only` has no address, so it takes none from its subnet."""

    card: int
    device: int
    kind: Literal["interface", "efa-only"]


def interfaces(instance_type: str) -> Iterator[Interface]:
    """Every interface of an instance type: the primary one first, then one with EFA on each card that takes it.

    The primary one must have addresses and stays without EFA; on its card, EFA is the second device, on the others the
    first (Amazon EC2 User Guide, same page).
    """
    yield Interface(0, 0, "interface")
    known = INSTANCE_TYPES.get(instance_type)
    first = FIRST_CARD.get(instance_type, 0)
    for card in range(first, first + (known.efa_interfaces if known else 0)):
        yield Interface(card, 0 if card else 1, "efa-only")
