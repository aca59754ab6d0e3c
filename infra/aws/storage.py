"""What a region keeps: weights, the KV tier, backups, access logs, and the shared store; one key encrypts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import fsx, kms

from infra.aws.buckets import Bucket, BucketArgs
from infra.aws.permissions.statement import ANY, Place, Statement, document
from infra.aws.valkey import Valkey, ValkeyArgs
from infra.config.aws.storage import Storage as StorageConfig

LOGS = "access-logs"
# Where log deliveries of load balancers come from (Elastic Load Balancing, "Access logs for your Application Load
# Balancer": regions since 2022, and all of them with the same principal from then on).
BALANCERS, SERVER_LOGS = "logdelivery.elasticloadbalancing.amazonaws.com", "logging.s3.amazonaws.com"

ALARMS = ["cloudwatch.amazonaws.com", "budgets.amazonaws.com", "events.amazonaws.com"]  # who publishes to SNS
LUSTRE_ROLE = "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access"
USES = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo", "kms:GenerateDataKey", "kms:DescribeKey"]


@dataclass(frozen=True)
class StorageArgs:
    """`prefix` begins the buckets' names; `subnets` and `security_groups` (ids) are for what lies in the network."""

    config: StorageConfig
    place: Place
    prefix: pulumi.Input[str]
    subnets: pulumi.Input[Sequence[pulumi.Input[str]]]
    security_groups: pulumi.Input[Sequence[pulumi.Input[str]]]
    log_days: int


class Storage(pulumi.ComponentResource):
    """`buckets` by what they hold: weights, kv, backups, access-logs."""

    key: pulumi.Output[str]
    buckets: Mapping[str, Bucket]
    valkey: Valkey
    lustre: fsx.LustreFileSystem | None = None

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Storage", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self.key = self._key()
        logs = self._bucket(LOGS, args.config.log_days, statements=_deliveries(args.place), encrypted=False)
        kept = {"weights": None, "kv": args.config.kv_days, "backups": args.config.backup_days}
        made = {what: self._bucket(what, days, logs.name) for what, days in kept.items()}
        self.buckets = {**made, LOGS: logs}
        config = args.config
        store = ValkeyArgs(config.valkey, args.subnets, args.security_groups, self.key, args.log_days, config.protect)
        self.valkey = Valkey(f"{name}-valkey", store, self._child)
        if config.lustre:
            self.lustre = self._lustre()
        self.register_outputs(
            {"key": self.key, "buckets": {what: bucket.name for what, bucket in self.buckets.items()}}
        )

    def _key(self) -> pulumi.Output[str]:
        key = kms.Key(
            self._name,
            description="what the region keeps, and its logs",
            enable_key_rotation=True,
            deletion_window_in_days=self._args.config.kms_deletion_days,
            policy=document(_key_policy(self._args.place, self._args.config.lustre is not None)),
            opts=pulumi.ResourceOptions(parent=self, protect=self._args.config.protect),
        )
        kms.Alias(self._name, name=f"alias/diphase/{pulumi.get_stack()}", target_key_id=key.key_id, opts=self._child)
        return key.arn

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
            key=self.key if encrypted else None,
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
            kms_key_id=self.key,
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


def _key_policy(place: Place, lustre: bool) -> list[Statement]:
    """The account decides by IAM who may use the key; beside it, services on behalf of the account."""
    ours = {"StringEquals": {"aws:SourceAccount": place.account}}
    found = [
        Statement("Account", ["kms:*"], principal={"AWS": place.global_arn("iam", "root")}),
        Statement(
            "Logs",
            USES,
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": place.arn("logs", "log-group:*")}},
            principal={"Service": pulumi.Output.concat("logs.", place.region, ".amazonaws.com")},
        ),
        Statement("Alarms", ["kms:Decrypt", "kms:GenerateDataKey"], conditions=ours, principal={"Service": ALARMS}),
    ]
    if lustre:
        # FSx makes this role, whose name ends with the file system's id, so it can't be named beforehand.
        role = place.global_arn("iam", f"role/aws-service-role/{LUSTRE_ROLE}_*")
        through = {"kms:ViaService": pulumi.Output.concat("s3.", place.region, ".amazonaws.com")}
        conditions = {"ArnLike": {"aws:PrincipalArn": role}, "StringEquals": through}
        found.append(Statement("Lustre", USES, conditions=conditions, principal={"AWS": ANY}))
    return found
