"""What each example stack would make, in a page reviewed as a diff. `python -m tests.infra.aws.summary` writes them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pulumi.runtime.config import set_all_config

from infra import cost
from infra.config import NAMESPACE, StackConfig
from infra.policy.resource import each, several
from tests.aws.programs import foundation
from tests.infra.aws.clusters import AUTHORITY
from tests.infra.aws.recorder import Graph, Recorded, record
from tests.infra.aws.terraform import NOT_FOUND, Provider, find_provider
from tests.infra.aws.test_stack_files import FILES, REGIONS

FOLDER = Path(__file__).parent / "summaries"
OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "region-valkey-token": {"token": "0123456789abcdef" * 4},
    "region": {"certificateAuthority": {"data": AUTHORITY}, "endpoint": "https://0123.eks.amazonaws.com"},
}


def declared(provider: Provider, config: StackConfig) -> Graph:
    """What a region stands on, of a stack's configuration."""
    groups = config.model_dump(by_alias=True, exclude_unset=True, mode="json")
    values = {f"{NAMESPACE}:{name}": json.dumps(group) for name, group in groups.items()}

    def program() -> None:
        set_all_config({**values, f"{NAMESPACE}:target": "aws"})
        foundation(Path())

    return record(provider, program, OUTPUTS)


def summary(graph: Graph, config: StackConfig) -> str:
    """Counts, open ports, statements, price."""
    bill = cost.bill(config)
    parts: dict[str, list[str]] = {
        f"USD a month: {bill.usd:,.0f}, at most {bill.most_usd:,.0f}": [],
        "Resources": sorted(
            f"{count:4} {kind}" for kind, count in Counter(one.type for one in graph.resources).items()
        ),
        "Ports": sorted(_ports(graph)),
        "Roles": list(_roles(graph)),
        "Nodes": sorted(_nodes(graph)),
    }
    return "\n".join(f"{title}\n" + "".join(f"  {line}\n" for line in lines) for title, lines in parts.items())


def _ports(graph: Graph) -> Iterator[str]:
    names = {f"{one.name}-id": one.name for one in graph.of("SecurityGroup")}
    for one in graph.of("SecurityGroupIngressRule"):
        rule = one.inputs
        source = rule.get("cidrIpv4") or names.get(rule.get("referencedSecurityGroupId", ""), "?")
        ports = "all" if rule["ipProtocol"] == "-1" else f"{rule['ipProtocol']} {_range(rule)}"
        yield f"{names[rule['securityGroupId']]}: {ports} from {source}"


def _range(rule: Mapping[str, Any]) -> str:
    first, last = int(rule["fromPort"]), int(rule["toPort"])
    return str(first) if first == last else f"{first}-{last}"


def _roles(graph: Graph) -> Iterator[str]:
    for one in sorted((*graph.of("RolePolicy"), *graph.of("iam/policy:Policy")), key=lambda found: found.name):
        for statement in json.loads(one.inputs["policy"])["Statement"]:
            yield f"{one.name}: {_statement(statement)}"
    for one in sorted(graph.of("RolePolicyAttachment"), key=lambda found: found.name):
        yield f"{one.name}: {one.inputs['policyArn']}"


def _statement(statement: Mapping[str, Any]) -> str:
    actions, resources = (", ".join(several(statement.get(key, []))) for key in ("Action", "Resource"))
    limited = " if " + json.dumps(statement["Condition"], sort_keys=True) if "Condition" in statement else ""
    return f"{statement['Effect']} {actions} on {resources}{limited}"


def _nodes(graph: Graph) -> Iterator[str]:
    for one in graph.of("NodeGroup"):
        template = next(other for other in graph.of("LaunchTemplate") if other.urn in one.dependencies)
        yield _group(one, template)


def _group(group: Recorded, template: Recorded) -> str:
    size, of = group.inputs["scalingConfig"], template.inputs
    efa = sum(str(one.get("interfaceType", "")).startswith("efa") for one in each(of, "networkInterfaces"))
    nodes = f"{size['minSize']:.0f} to {size['maxSize']:.0f}"
    kind, places = f"{of['instanceType']} {group.inputs['capacityType']}", ", ".join(group.inputs["subnetIds"])
    return f"{group.name}: {kind}, {nodes}, {efa} EFA interfaces, release {group.inputs['releaseVersion']}, in {places}"


def main() -> None:
    """Write the summary of every example stack."""
    binary = find_provider(os.environ)
    if binary is None:
        raise SystemExit(NOT_FOUND)
    provider = Provider(binary)
    try:
        FOLDER.mkdir(exist_ok=True)
        for stack in FILES:
            if stack in REGIONS:
                text = summary(declared(provider, REGIONS[stack]), REGIONS[stack])
                (FOLDER / f"{stack}.txt").write_text(text, encoding="utf-8")
    finally:
        provider.stop()


if __name__ == "__main__":
    main()
