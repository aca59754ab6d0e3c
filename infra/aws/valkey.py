"""The shared store of KV metadata: ElastiCache for Valkey, in several zones, with TLS and a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudwatch, elasticache

from infra.aws.auth_token import AuthToken
from infra.config.aws.storage import Valkey as ValkeyConfig

PORT = 6379
SNAPSHOT_WINDOW = "02:00-03:00"  # UTC; it must not meet the maintenance window, which its group's default does not


@dataclass(frozen=True)
class ValkeyArgs:
    """`subnets` and `security_groups` are ids; `key` is the ARN of the key that it is encrypted with."""

    config: ValkeyConfig
    subnets: pulumi.Input[Sequence[pulumi.Input[str]]]
    security_groups: pulumi.Input[Sequence[pulumi.Input[str]]]
    key: pulumi.Input[str]
    log_days: int
    protect: bool


class Valkey(pulumi.ComponentResource):
    """`url` is what its clients connect to; it holds the token and is a secret."""

    url: pulumi.Output[str]
    endpoint: pulumi.Output[str]

    def __init__(self, name: str, args: ValkeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Valkey", name, None, opts)
        config, child = args.config, pulumi.ResourceOptions(parent=self)
        token = AuthToken(f"{name}-token", child)
        subnets = elasticache.SubnetGroup(
            name, description="shared store of KV metadata", subnet_ids=args.subnets, opts=child
        )
        family = f"valkey{config.engine_version.partition('.')[0]}"
        parameters = elasticache.ParameterGroup(
            name,
            family=family,
            description="what is least needed goes first",
            parameters=[elasticache.ParameterGroupParameterArgs(name="maxmemory-policy", value="volatile-lru")],
            opts=child,
        )
        logs = cloudwatch.LogGroup(f"{name}-slow", retention_in_days=args.log_days, kms_key_id=args.key, opts=child)
        slow = elasticache.ReplicationGroupLogDeliveryConfigurationArgs(
            destination=logs.name, destination_type="cloudwatch-logs", log_format="json", log_type="slow-log"
        )
        several = config.replicas > 0
        group = elasticache.ReplicationGroup(
            name,
            description="shared store of KV metadata",
            engine="valkey",
            engine_version=config.engine_version,
            node_type=config.node_type,
            port=PORT,
            num_cache_clusters=config.replicas + 1,
            automatic_failover_enabled=several,
            multi_az_enabled=several,
            parameter_group_name=parameters.name,
            subnet_group_name=subnets.name,
            security_group_ids=args.security_groups,
            at_rest_encryption_enabled=True,
            kms_key_id=args.key,
            transit_encryption_enabled=True,
            auth_token=token.token,
            auth_token_update_strategy="ROTATE",  # noqa: S106 - both are good until the next change
            snapshot_retention_limit=config.snapshot_days,
            snapshot_window=SNAPSHOT_WINDOW if config.snapshot_days else None,
            maintenance_window=config.maintenance,
            log_delivery_configurations=[slow],
            # Without it a change waits for the weekly window, and `up` says that it was made.
            apply_immediately=True,
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        self.endpoint = group.primary_endpoint_address
        opened = pulumi.Output.concat("rediss://:", token.token, "@", self.endpoint, f":{PORT}/0")
        self.url = pulumi.Output.secret(opened)
        self.register_outputs({"endpoint": self.endpoint})
