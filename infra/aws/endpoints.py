"""AWS services inside the VPC: S3 by a gateway, others by interfaces; only this account's credentials get through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2

from infra.aws.permissions.statement import ANY, Conditions, Place, Statement, document

EVERYONE = {"AWS": ANY}


@dataclass(frozen=True)
class GatewayArgs:
    """`tables` are ids of the route tables that lead to S3."""

    vpc: pulumi.Input[str]
    place: Place
    cluster: str
    tables: Sequence[pulumi.Input[str]]


class Gateway(pulumi.ComponentResource):
    """S3, without the price of a way out. `prefixes` is the id of the list of its addresses."""

    prefixes: pulumi.Output[str]
    endpoint: ec2.VpcEndpoint

    def __init__(self, name: str, args: GatewayArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Gateway", name, None, opts)
        self.endpoint = ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=args.vpc,
            service_name=_service(args.place, "s3"),
            vpc_endpoint_type="Gateway",
            route_table_ids=args.tables,
            policy=document(_of_storage(args.place)),
            tags={"Name": f"{args.cluster}-s3"},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.prefixes = self.endpoint.prefix_list_id
        self.register_outputs({"prefixes": self.prefixes})


@dataclass(frozen=True)
class EndpointsArgs:
    """`subnets` by zone and `group`, ids: where the interfaces lie, and who reaches them."""

    vpc: pulumi.Input[str]
    place: Place
    cluster: str
    services: Sequence[str]
    subnets: Mapping[str, pulumi.Input[str]]
    group: pulumi.Input[str]


class Endpoints(pulumi.ComponentResource):
    """An interface in each zone for each service, under the service's own name."""

    endpoints: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: EndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Endpoints", name, None, opts)
        policy = document([_ours(args.place)])
        self.endpoints = [
            ec2.VpcEndpoint(
                f"{name}-{service.replace('.', '-')}",
                vpc_id=args.vpc,
                service_name=_service(args.place, service),
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(args.subnets.values()),
                security_group_ids=[args.group],
                policy=policy,
                tags={"Name": f"{args.cluster}-{service}"},
                opts=pulumi.ResourceOptions(parent=self),
            )
            for service in args.services
        ]
        self.register_outputs({})


def _service(place: Place, service: str) -> pulumi.Output[str]:
    return pulumi.Output.concat("com.amazonaws.", place.region, ".", service)


def _ours(place: Place) -> Statement:
    """Whoever brings credentials of another account in, to carry something out with them, gets nowhere."""
    ours: Conditions = {"StringEquals": {"aws:PrincipalAccount": place.account}}
    return Statement("Ours", [ANY], conditions=ours, principal=EVERYONE)


def _of_storage(place: Place) -> list[Statement]:
    # Layers of images are read from buckets of others, signed by them or by nobody: ECR's (ECR User Guide, "Minimum
    # Amazon S3 bucket permissions") and those of registry.k8s.io (kubernetes/k8s.io#4214).
    return [_ours(place), Statement("Layers", ["s3:GetObject"], principal=EVERYONE)]
