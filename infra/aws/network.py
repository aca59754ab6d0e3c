"""The network of a region: one VPC, subnets by kind and zone, ways out, endpoints, security groups, flow logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2

from infra.aws.endpoints import Endpoints, EndpointsArgs, Gateway, GatewayArgs
from infra.aws.flow_logs import FlowLogs, FlowLogsArgs
from infra.aws.permissions.statement import Place
from infra.aws.security_groups import SecurityGroups, SecurityGroupsArgs
from infra.aws.ways_out import WaysOut, WaysOutArgs
from infra.config.aws.network import Network as NetworkConfig
from infra.config.aws.subnets import LONGER, Kind, Subnet, subnets


@dataclass(frozen=True)
class NetworkArgs:
    """`cluster` is the EKS cluster's name, by which its controllers find subnets; `key` the ARN of the region's key.
    `lustre` is whether the region has a Lustre file system."""

    config: NetworkConfig
    place: Place
    cluster: str
    key: pulumi.Input[str]
    log_days: int
    lustre: bool = False


class Network(pulumi.ComponentResource):
    """`subnets`, ids by kind and zone; `groups`, ids of security groups; `nat_gateways`, ids by zone.

    `ready` must be there before anything that lies in the subnets, and outlive it: routes, rules, endpoints.
    """

    vpc: pulumi.Output[str]
    subnets: Mapping[Kind, Mapping[str, pulumi.Output[str]]]
    groups: Mapping[str, pulumi.Output[str]]
    nat_gateways: Mapping[str, pulumi.Output[str]]
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Network", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        config, place, cluster = args.config, args.place, args.cluster
        vpc = ec2.Vpc(
            name,
            cidr_block=config.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,  # interface endpoints have names of their own by it
            tags={"Name": cluster},
            opts=self._child,
        )
        self.vpc = vpc.id
        self.subnets, kept = self._subnets()
        ways = WaysOut(f"{name}-ways", WaysOutArgs(config, vpc.id, cluster, self.subnets), self._child)
        tables = list(ways.tables.values())
        gateway = Gateway(f"{name}-gateway", GatewayArgs(vpc.id, place, cluster, tables), self._child)
        wanted = SecurityGroupsArgs(
            vpc.id, config.cidr, cluster, out=config.nat != "none", lustre=args.lustre, s3=gateway.prefixes
        )
        groups = SecurityGroups(f"{name}-groups", wanted, self._child)
        private = EndpointsArgs(
            vpc.id, place, cluster, config.endpoints, self.subnets["private"], groups.ids["endpoints"]
        )
        endpoints = Endpoints(f"{name}-endpoints", private, self._child)
        if config.flow_logs != "none":
            flows = FlowLogsArgs(vpc.id, place, config.flow_logs, args.key, args.log_days)
            FlowLogs(f"{name}-flows", flows, self._child)
        self.groups, self.nat_gateways = groups.ids, ways.gateways
        self.ready = [*ways.ready, *kept, *groups.rules, gateway.endpoint, *endpoints.endpoints]
        self.register_outputs({"vpc": self.vpc, "subnets": self.subnets, "groups": self.groups})

    def _subnets(self) -> tuple[Mapping[Kind, Mapping[str, pulumi.Output[str]]], Sequence[pulumi.Resource]]:
        """Ids of the subnets by kind and zone, and what the pods' subnets keep for prefixes."""
        config = self._args.config
        # A block of pods' subnets is the VPC's only when it is associated, and can't be taken away before them.
        second = ec2.VpcIpv4CidrBlockAssociation(
            f"{self._name}-pods", vpc_id=self.vpc, cidr_block=config.pod_cidr, opts=self._child
        )
        ids: dict[Kind, dict[str, pulumi.Output[str]]] = {kind: {} for kind in LONGER}
        kept: list[pulumi.Resource] = []
        for subnet in subnets(config):
            after = [second] if subnet.kind == "pods" else []
            made = ec2.Subnet(
                f"{self._name}-{subnet.name}",
                vpc_id=self.vpc,
                availability_zone=subnet.zone,
                cidr_block=subnet.cidr,
                map_public_ip_on_launch=False,
                tags=self._tags(subnet),
                opts=pulumi.ResourceOptions(parent=self, depends_on=after),
            )
            ids[subnet.kind][subnet.zone] = made.id
            if subnet.prefixes:
                kept.append(
                    ec2.SubnetCidrReservation(
                        f"{self._name}-{subnet.name}",
                        subnet_id=made.id,
                        cidr_block=subnet.prefixes,
                        reservation_type="prefix",
                        opts=self._child,
                    )
                )
        return ids, kept

    def _tags(self, subnet: Subnet) -> Mapping[str, str]:
        """By which the load balancer controller and Karpenter find subnets (EKS User Guide, "VPC and subnet
        considerations"; Karpenter, "NodeClasses")."""
        cluster = self._args.cluster
        roles: Mapping[Kind, Mapping[str, str]] = {
            "public": {"kubernetes.io/role/elb": "1"},
            "private": {"kubernetes.io/role/internal-elb": "1", "karpenter.sh/discovery": cluster},
        }
        return {"Name": f"{cluster}-{subnet.name}", **roles.get(subnet.kind, {})}
