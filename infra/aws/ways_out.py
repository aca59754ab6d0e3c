"""Ways out of a VPC: the internet gateway; NAT in each zone, one or none; the routes that lead there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2

from infra.config.aws.network import Network as NetworkConfig
from infra.config.aws.subnets import Kind

ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class WaysOutArgs:
    """`subnets`, ids by kind and zone."""

    config: NetworkConfig
    vpc: pulumi.Input[str]
    cluster: str
    subnets: Mapping[Kind, Mapping[str, pulumi.Input[str]]]


class WaysOut(pulumi.ComponentResource):
    """Load balancers reach the internet by its gateway; nodes and pods of a zone by that zone's NAT; the control
    plane's interfaces not at all.

    `tables` are ids of the tables of nodes and pods, by zone; `gateways` those of the NATs, by their zones. `ready` is
    what nodes need, and what must outlive them.
    """

    tables: Mapping[str, pulumi.Output[str]]
    gateways: Mapping[str, pulumi.Output[str]]
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: WaysOutArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:WaysOut", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        zones, subnets = args.config.zones, args.subnets
        internet = ec2.InternetGateway(
            f"{name}-internet", vpc_id=args.vpc, tags=self._tags("internet"), opts=self._child
        )
        public = self._table("public")
        opened = ec2.Route(
            f"{name}-public",
            route_table_id=public.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=internet.id,
            opts=self._child,
        )
        led = {zone: self._lead(f"public-{zone[-1]}", subnets["public"][zone], public) for zone in zones}
        closed = self._table("cluster")
        for zone in zones:
            self._lead(f"cluster-{zone[-1]}", subnets["cluster"][zone], closed)
        several = {"zone": zones, "one": zones[:1], "none": []}[args.config.nat]
        # A NAT needs the internet when it is made; while it is there the gateway can't be detached.
        gateways = {zone: self._nat(zone, [internet, opened, led[zone]]) for zone in several}
        ready: list[pulumi.Resource] = []
        tables = {}
        for place, zone in enumerate(zones):
            table = self._table(f"private-{zone[-1]}")
            ready += [
                self._lead(f"private-{zone[-1]}", subnets["private"][zone], table),
                self._lead(f"pods-{zone[-1]}", subnets["pods"][zone], table),
            ]
            if several:
                gateway = gateways[several[min(place, len(several) - 1)]]
                ready.append(self._route(zone, table, gateway))
            tables[zone] = table.id
        self.tables = tables
        self.gateways = {zone: gateway.id for zone, gateway in gateways.items()}
        self.ready = ready
        self.register_outputs({"tables": self.tables, "gateways": self.gateways})

    def _table(self, which: str) -> ec2.RouteTable:
        return ec2.RouteTable(f"{self._name}-{which}", vpc_id=self._args.vpc, tags=self._tags(which), opts=self._child)

    def _lead(self, which: str, subnet: pulumi.Input[str], table: ec2.RouteTable) -> pulumi.Resource:
        return ec2.RouteTableAssociation(
            f"{self._name}-{which}", subnet_id=subnet, route_table_id=table.id, opts=self._child
        )

    def _nat(self, zone: str, after: Sequence[pulumi.Resource]) -> ec2.NatGateway:
        which = f"nat-{zone[-1]}"
        waits = pulumi.ResourceOptions(parent=self, depends_on=after)
        address = ec2.Eip(f"{self._name}-{which}", domain="vpc", tags=self._tags(which), opts=waits)
        return ec2.NatGateway(
            f"{self._name}-{which}",
            allocation_id=address.id,
            subnet_id=self._args.subnets["public"][zone],
            tags=self._tags(which),
            opts=waits,
        )

    def _route(self, zone: str, table: ec2.RouteTable, gateway: ec2.NatGateway) -> pulumi.Resource:
        return ec2.Route(
            f"{self._name}-private-{zone[-1]}",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=gateway.id,
            opts=self._child,
        )

    def _tags(self, which: str) -> Mapping[str, str]:
        return {"Name": f"{self._args.cluster}-{which}"}
