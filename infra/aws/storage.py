"""What a region keeps: weights, the KV tier, backups, access logs, and the shared store; its key encrypts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import fsx

from infra.aws.buckets import Bucket, BucketArgs
from infra.aws.permissions.statement import Place, Statement
from infra.aws.valkey import Valkey, ValkeyArgs
from infra.config.aws.storage import Storage as StorageConfig

LOGS = "access-logs"
# Where log deliveries of load balancers come from (Elastic Load Balancing, "Access logs for your Application Load
# Balancer": regions since 2022, and all of them with the same principal from then on).
BALANCERS, SERVER_LOGS = "logdelivery.elasticloadbalancing.amazonaws.com", "logging.s3.amazonaws.com"


@dataclass(frozen=True)
class StorageArgs:
    """`prefix` begins the buckets' names; `key` is an ARN. `subnets` and `security_groups`, ids, are for what lies in
    the network."""

    config: StorageConfig
    place: Place
    prefix: pulumi.Input[str]
    key: pulumi.Input[str]
    subnets: pulumi.Input[Sequence[pulumi.Input[str]]]
    security_groups: pulumi.Input[Sequence[pulumi.Input[str]]]
    log_days: int


class Storage(pulumi.ComponentResource):
    """`buckets` by what they hold: weights, kv, backups, access-logs."""

    buckets: Mapping[str, Bucket]
    valkey: Valkey
    lustre: fsx.LustreFileSystem | None = None

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Storage", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        logs = self._bucket(LOGS, args.config.log_days, statements=_deliveries(args.place), encrypted=False)
        kept = {"weights": None, "kv": args.config.kv_days, "backups": args.config.backup_days}
        made = {what: self._bucket(what, days, logs.name) for what, days in kept.items()}
        self.buckets = {**made, LOGS: logs}
        config = args.config
        store = ValkeyArgs(config.valkey, args.subnets, args.security_groups, args.key, args.log_days, config.protect)
        self.valkey = Valkey(f"{name}-valkey", store, self._child)
        if config.lustre:
            self.lustre = self._lustre()
        self.register_outputs({"buckets": {what: bucket.name for what, bucket in self.buckets.items()}})

    def _bucket(
        self,
        what: str,
        days: int | None,
        logs: pulumi.Input[str] | None = None,
        statements: Sequence[Statement] = (),
        encrypted: bool = True,
    ) -> Bucket:
        config = self._args.config
        args = BucketArgs(
            bucket=pulumi.Output.concat(self._args.prefix, "-", what),
            protect=config.protect,
            noncurrent_days=config.noncurrent_days,
            key=self._args.key if encrypted else None,
            expire_days=days,
            logs=logs,
            statements=statements,
        )
        return Bucket(f"{self._name}-{what}", args, self._child)

    def _lustre(self) -> fsx.LustreFileSystem:
        """A file system in the first of the subnets, filled from the weights as they are read."""
        wanted = self._args.config.lustre
        assert wanted is not None
        first = pulumi.Output.from_input(self._args.subnets).apply(lambda subnets: subnets[0])
        system = fsx.LustreFileSystem(
            f"{self._name}-lustre",
            deployment_type="PERSISTENT_2",
            storage_type="SSD",
            storage_capacity=wanted.capacity_gib,
            per_unit_storage_throughput=wanted.throughput,
            subnet_ids=first,
            security_group_ids=self._args.security_groups,
            kms_key_id=self._args.key,
            data_compression_type="LZ4",
            opts=pulumi.ResourceOptions(parent=self, protect=self._args.config.protect),
        )
        policy = fsx.DataRepositoryAssociationS3Args(
            auto_import_policy=fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=["NEW", "CHANGED", "DELETED"])
        )
        fsx.DataRepositoryAssociation(
            f"{self._name}-lustre",
            file_system_id=system.id,
            file_system_path="/weights",
            data_repository_path=pulumi.Output.concat("s3://", self.buckets["weights"].name),
            s3=policy,
            opts=self._child,
        )
        return system


def _deliveries(place: Place) -> list[Statement]:
    """Who writes access logs, of this account only."""
    ours = {"StringEquals": {"aws:SourceAccount": place.account}}
    return [
        Statement(sid, ["s3:PutObject"], (), ours, principal={"Service": service})
        for sid, service in (("Buckets", SERVER_LOGS), ("Balancers", BALANCERS))
    ]
