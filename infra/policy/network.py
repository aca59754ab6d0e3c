"""Nothing but port 443 is open to the internet, and no node is on it."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Sequence

from infra.config.aws.network import PRIVATE
from infra.policy.resource import UNKNOWN, Resource, Rule, at, differs, each

INGRESS, EGRESS = (f"aws:vpc/securityGroup{way}Rule:SecurityGroup{way}Rule" for way in ("Ingress", "Egress"))


def _internet(block: object) -> bool:
    if not isinstance(block, str) or block == UNKNOWN:
        return False
    found = ipaddress.ip_network(block)
    return not isinstance(found, ipaddress.IPv4Network) or not any(found.subnet_of(one) for one in PRIVATE)


def _open(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    sources = [at(one.inputs, "cidrIpv4"), at(one.inputs, "cidrIpv6")]
    wide = [block for block in sources if _internet(block)]
    if wide and (differs(443, one.inputs, "fromPort") or differs(443, one.inputs, "toPort")):
        ports = f"{at(one.inputs, 'fromPort')}-{at(one.inputs, 'toPort')}"
        yield f"opens ports {ports} to {wide[0]}: only 443 is open to the internet"


def _inline(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    # EC2 lets a group of no rules of its own send everywhere; Terraform takes that away only where rules are its own.
    if each(one.inputs, "ingress") or each(one.inputs, "egress"):
        yield "has rules inside: declare each as a rule of its own, so that others can be judged"


def _subnet(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    if at(one.inputs, "mapPublicIpOnLaunch") in (True, "true"):
        yield "gives public addresses to whatever starts in it: set mapPublicIpOnLaunch to false"


def _node(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    for number, interface in enumerate(each(one.inputs, "networkInterfaces")):
        if at(interface, "associatePublicIpAddress") in (True, "true"):
            yield f"gives interface {number} a public address: set associatePublicIpAddress to false"


def _group(one: Resource, everything: Sequence[Resource]) -> Iterator[str]:
    """A subnet is public where its route table has a way to an internet gateway."""
    by_urn = {other.urn: other for other in everything}
    public = {
        urn
        for route in everything
        if route.kind == "Route" and at(route.inputs, "gatewayId") is not None
        for urn in route.dependencies
        if urn in by_urn and by_urn[urn].kind == "RouteTable"
    }
    for association in everything:
        if association.kind != "RouteTableAssociation" or not public.intersection(association.dependencies):
            continue
        subnets = {urn for urn in association.dependencies if urn in by_urn and by_urn[urn].kind == "Subnet"}
        for urn in subnets.intersection(one.dependencies):
            yield f"has nodes in {by_urn[urn].name}, a public subnet: take private ones"


def _efa(one: Resource, everything: Sequence[Resource]) -> Iterator[str]:
    """gardener-extension-provider-aws#1832: open egress alone is not enough for EFA."""
    if not one.name.endswith("-efa"):
        return
    for kind, way in ((INGRESS, "ingress"), (EGRESS, "egress")):
        rules = [other for other in everything if other.type == kind and one.urn in other.dependencies]
        if not any(_itself(rule, one) for rule in rules):
            yield f"has no {way} of all protocols from and to itself, without which EFA has no traffic"


def _itself(rule: Resource, group: Resource) -> bool:
    own, other = at(rule.inputs, "securityGroupId"), at(rule.inputs, "referencedSecurityGroupId")
    groups = [urn for urn in rule.dependencies if ":SecurityGroup::" in urn]
    same = own == other if UNKNOWN not in (own, other) else groups == [group.urn]
    return same and other is not None and at(rule.inputs, "ipProtocol") == "-1"


def _ingress(one: Resource, _all: Sequence[Resource]) -> Iterator[str]:
    annotations = at(one.inputs, "metadata", "annotations")
    ports = at(annotations, "alb.ingress.kubernetes.io/listen-ports")
    if ports == UNKNOWN:
        return
    listens = [next(iter(pair.items())) for pair in json.loads(ports or '[{"HTTP": 80}]')]
    if listens != [("HTTPS", 443)]:
        yield f"listens on {listens}: the load balancer listens on HTTPS 443 alone"


RULES = (
    Rule("only-443-open", "only port 443 is open to the internet", frozenset({INGRESS}), _open),
    Rule("rules-apart", "rules are not inside groups", frozenset({"aws:ec2/securityGroup:SecurityGroup"}), _inline),
    Rule("no-public-subnet", "subnets give no public addresses", frozenset({"aws:ec2/subnet:Subnet"}), _subnet),
    Rule("no-public-node", "no node has a public address", frozenset({"aws:ec2/launchTemplate:LaunchTemplate"}), _node),
    Rule(
        "private-nodes", "nodes are in private subnets", frozenset({"aws:eks/nodeGroup:NodeGroup"}), _group, whole=True
    ),
    Rule(
        "efa-to-itself",
        "EFA's group refers to itself",
        frozenset({"aws:ec2/securityGroup:SecurityGroup"}),
        _efa,
        whole=True,
    ),
    Rule("https-only", "balancers listen on 443", frozenset({"kubernetes:networking.k8s.io/v1:Ingress"}), _ingress),
)
