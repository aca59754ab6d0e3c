"""All rules, and what they have against resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.config import StackConfig
from infra.policy import encryption, keeping, network, nodes, permissions
from infra.policy.nodes import RESERVATION, TEMPLATE
from infra.policy.resource import Resource, Rule, at

RULES: tuple[Rule, ...] = (
    *network.RULES,
    *encryption.RULES,
    *keeping.RULES,
    *nodes.RULES,
    *permissions.RULES,
)


def faults(resources: Sequence[Resource]) -> Iterator[tuple[Rule, Resource, str]]:
    """Every fault of every resource, with the rule that found it."""
    for rule in RULES:
        for one in resources:
            if one.type in rule.types:
                yield from ((rule, one, said) for said in rule.judge(one, resources))


def idle(config: StackConfig, resources: Sequence[Resource]) -> Iterator[str]:
    """Reservations that the configuration names and no launch template does; Karpenter finds its own by its classes."""
    named = {at(one.inputs, *RESERVATION) for one in resources if one.type == TEMPLATE}
    for pool, wanted in config.capacity.gpu_pools.items():
        if wanted.provisioner == "nodeGroup" and wanted.reservation_id and wanted.reservation_id not in named:
            yield f"{wanted.reservation_id} of the {pool} pool is in no launch template, so that it idles"
