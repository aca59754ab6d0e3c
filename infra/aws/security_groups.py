"""Security groups, and the only edges between them: who opens connections to whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pulumi
from pulumi_aws import ec2, vpc

from infra.aws.valkey import PORT as VALKEY_PORT
from infra.kubernetes.names import PROBE_PORT

Group = Literal["cluster", "nodes", "efa", "store", "endpoints"]
End = Literal["cluster", "nodes", "efa", "store", "endpoints", "internet", "network"]
ALL, ANYWHERE = "-1", "0.0.0.0/0"
# EC2 lets nobody change a group's description, short of another group: they stay as they are.
GROUPS: Mapping[Group, str] = {
    "cluster": "interfaces of the control plane",
    "nodes": "nodes and their pods",
    "efa": "EFA interfaces of nodes",
    "store": "what keeps data inside the network: Valkey, Lustre",
    "endpoints": "interface endpoints of AWS services",
}


class Edge(NamedTuple):
    """Who opens connections to whom: a group, or "internet" or "network" (the VPC's first block). -1 is everything."""

    source: End
    target: End
    protocol: str
    first: int | None
    last: int | None
    why: str

    @property
    def ports(self) -> str:
        """Such as 443, 1018-1023 or all."""
        if self.first is None:
            return "all"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def _tcp(source: End, target: End, port: int, why: str) -> Edge:
    return Edge(source, target, "tcp", port, port, why)


# EC2 takes no apostrophes and few other marks in what a rule says.
# The resolver, the clock and the metadata service of a VPC are reached whatever groups say (VPC User Guide, "Security
# group rules": traffic that they don't filter).
ALWAYS = (
    _tcp("nodes", "cluster", 443, "Kubernetes API"),
    _tcp("network", "cluster", 443, "Kubernetes API, for those who deploy from inside the VPC"),
    # cert-manager's webhook and that of Prometheus' operator have the same number as kubelet, on addresses of pods.
    _tcp("cluster", "nodes", 10250, "kubelet; webhooks of cert-manager and the Prometheus operator"),
    _tcp("cluster", "nodes", 9443, "webhooks of the load balancer controller and KEDA"),
    _tcp("cluster", "nodes", 6443, "metrics of KEDA, for the autoscaler"),
    _tcp("cluster", "nodes", PROBE_PORT, "state of the roles, through the API: diphase status and verify"),
    Edge("nodes", "nodes", ALL, None, None, "pods among each other; network policies say which"),
    # EC2 User Guide, "Get started with EFA and MPI": both ways, all protocols; open egress alone is not enough.
    Edge("efa", "efa", ALL, None, None, "KV and collectives over EFA"),
    _tcp("nodes", "store", VALKEY_PORT, "Valkey"),
    _tcp("nodes", "endpoints", 443, "AWS services"),
)
OUT = _tcp("nodes", "internet", 443, "registries, models, AWS services without an endpoint")
# FSx for Lustre User Guide, "File system access control with Amazon VPC".
LUSTRE_ENDS: tuple[tuple[End, End], ...] = (("nodes", "store"), ("store", "nodes"), ("store", "store"))
LUSTRE = tuple(
    Edge(source, target, "tcp", first, last, "Lustre")
    for source, target in LUSTRE_ENDS
    for first, last in ((988, 988), (1018, 1023))
)


def edges(*, out: bool, lustre: bool) -> tuple[Edge, ...]:
    """All edges of a region; `out` is whether nodes have a way out."""
    return ALWAYS + ((OUT,) if out else ()) + (LUSTRE if lustre else ())


@dataclass(frozen=True)
class SecurityGroupsArgs:
    """`vpc` is an id; `network` the VPC's first block; `cluster` the EKS cluster's name. `s3` is the id of S3's prefix
    list, the only way out where there is no other."""

    vpc: pulumi.Input[str]
    network: str
    cluster: str
    out: bool
    lustre: bool
    s3: pulumi.Input[str]


class SecurityGroups(pulumi.ComponentResource):
    """`ids` by group. `rules` must be there before anything that is in a group: FSx refuses a file system whose ports
    are closed, and a node that reaches nothing never joins."""

    ids: Mapping[str, pulumi.Output[str]]
    rules: list[pulumi.Resource]

    def __init__(self, name: str, args: SecurityGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:SecurityGroups", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        # The group that a VPC comes with lets everything in it talk to everything: nothing may.
        ec2.DefaultSecurityGroup(f"{name}-default", vpc_id=args.vpc, opts=self._child)
        self.ids = {group: self._group(group, says).id for group, says in GROUPS.items()}
        self.rules = [rule for edge in edges(out=args.out, lustre=args.lustre) for rule in self._edge(edge)]
        if not args.out:
            self.rules.append(self._storage())
        self.register_outputs({"ids": self.ids})

    def _group(self, group: Group, says: str) -> ec2.SecurityGroup:
        tags = {"Name": f"{self._args.cluster}-{group}"}
        if group == "nodes":
            # The load balancer controller opens the ports of its targets in the one group of an interface that says
            # so (AWS Load Balancer Controller, "Security groups"): no other group may.
            tags[f"kubernetes.io/cluster/{self._args.cluster}"] = "owned"
        return ec2.SecurityGroup(
            f"{self._name}-{group}",
            vpc_id=self._args.vpc,
            description=says,
            revoke_rules_on_delete=True,  # groups name each other, and the controller's rules are not ours
            tags=tags,
            opts=self._child,
        )

    def _edge(self, edge: Edge) -> Iterator[pulumi.Resource]:
        """The rules of an edge: one on each group that it has, for both ends must allow it."""
        name = f"{self._name}-{edge.source}-{edge.target}-{edge.ports}"
        source, target = self.ids.get(edge.source), self.ids.get(edge.target)
        blocks = {"internet": ANYWHERE, "network": self._args.network}
        if target is not None:
            yield vpc.SecurityGroupIngressRule(
                name,
                security_group_id=target,
                description=edge.why,
                ip_protocol=edge.protocol,
                from_port=edge.first,
                to_port=edge.last,
                referenced_security_group_id=source,
                cidr_ipv4=blocks.get(edge.source),
                opts=self._child,
            )
        if source is not None:
            yield vpc.SecurityGroupEgressRule(
                name,
                security_group_id=source,
                description=edge.why,
                ip_protocol=edge.protocol,
                from_port=edge.first,
                to_port=edge.last,
                referenced_security_group_id=target,
                cidr_ipv4=blocks.get(edge.target),
                opts=self._child,
            )

    def _storage(self) -> pulumi.Resource:
        return vpc.SecurityGroupEgressRule(
            f"{self._name}-nodes-s3-443",
            security_group_id=self.ids["nodes"],
            description="S3, by its gateway endpoint",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            prefix_list_id=self._args.s3,
            opts=self._child,
        )
