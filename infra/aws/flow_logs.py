"""Connections of a VPC, logged: those that were refused, or all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pulumi
from pulumi_aws import cloudwatch, ec2, iam

from infra.aws.permissions.statement import Place, Statement, document, trusting


@dataclass(frozen=True)
class FlowLogsArgs:
    """`vpc` is an id, `key` the ARN of the key that the logs are encrypted with."""

    vpc: pulumi.Input[str]
    place: Place
    traffic: Literal["all", "reject"]
    key: pulumi.Input[str]
    log_days: int


class FlowLogs(pulumi.ComponentResource):
    """A log group that ends what it keeps, and the role that writes to it."""

    def __init__(self, name: str, args: FlowLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:FlowLogs", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        logs = cloudwatch.LogGroup(name, retention_in_days=args.log_days, kms_key_id=args.key, opts=child)
        # VPC User Guide, "IAM role for publishing flow logs to CloudWatch Logs": with the account, against a deputy
        # that is confused.
        trust = trusting("vpc-flow-logs.amazonaws.com", {"StringEquals": {"aws:SourceAccount": args.place.account}})
        role = iam.Role(name, description="flow logs of the VPC", assume_role_policy=trust, opts=child)
        streams = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
        statement = Statement("Write", streams, [pulumi.Output.concat(logs.arn, ":*")])
        policy = iam.RolePolicy(name, role=role.name, policy=document([statement]), opts=child)
        ec2.FlowLog(
            name,
            vpc_id=args.vpc,
            traffic_type=args.traffic.upper(),
            log_destination_type="cloud-watch-logs",
            log_destination=logs.arn,
            iam_role_arn=role.arn,
            max_aggregation_interval=600,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        self.register_outputs({})
