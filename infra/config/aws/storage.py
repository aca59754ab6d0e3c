"""The group of storage: buckets, the shared store of KV metadata, an optional parallel file system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.config.group import Group

# A bucket's name has 63 characters at most (Amazon S3 User Guide, "General purpose bucket naming rules"); the longest
# ending that we add is "-access-logs".
Prefix = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{1,48}[a-z0-9]$")]
LUSTRE_STEP_GIB = 2400


class Lustre(Group):
    """A file system for weights, beside S3: worth it where many nodes read the same hundreds of gigabytes at once."""

    capacity_gib: int = Field(1200, ge=1200, description="1200, or a multiple of 2400, GiB")
    throughput: Literal[125, 250, 500, 1000] = Field(125, description="MB/s for each TiB")

    @model_validator(mode="after")
    def _sizes(self) -> Lustre:
        # FSx for Lustre User Guide, "Working with storage capacity", deployment type PERSISTENT_2.
        if self.capacity_gib != 1200 and self.capacity_gib % LUSTRE_STEP_GIB:
            near = max(1, round(self.capacity_gib / LUSTRE_STEP_GIB)) * LUSTRE_STEP_GIB
            raise ValueError(f"capacityGib is {self.capacity_gib}; FSx sells 1200 or multiples of 2400: take {near}")
        return self


class Valkey(Group):
    """The shared store of KV metadata: ElastiCache for Valkey, with TLS and a token."""

    node_type: str = Field(
        "cache.r7g.large", pattern=r"^cache\.[a-z0-9]+\.[a-z0-9]+$", description="what its nodes are"
    )
    engine_version: str = Field("8.0", pattern=r"^[78]\.\d$", description="Valkey's version")
    replicas: int = Field(1, ge=0, le=5, description="beside the primary; with one or more they lie in other zones")
    snapshot_days: int = Field(7, ge=0, le=35, description="how long its daily snapshots are kept; none at 0")
    maintenance: str = Field(
        "sun:04:00-sun:05:00",
        pattern=r"^[a-z]{3}:\d{2}:\d{2}-[a-z]{3}:\d{2}:\d{2}$",
        description="the weekly hour, UTC, in which AWS may restart its nodes",
    )


class Storage(Group):
    """Of the aws target. Buckets for weights, KV, backups and access logs: encrypted, versioned, for TLS only."""

    prefix: Prefix | None = Field(
        None, description="buckets are PREFIX-weights and so on; `diphase-STACK-ACCOUNT` when absent"
    )
    protect: bool = Field(True, description="whether Pulumi refuses to delete or replace what holds data")
    kv_days: int = Field(7, ge=1, le=365, description="how long an object of the KV tier is kept")
    backup_days: int = Field(35, ge=1, description="how long a backup is kept")
    log_days: int = Field(90, ge=1, description="how long an access log is kept")
    noncurrent_days: int = Field(30, ge=1, description="how long a replaced or deleted version is kept")
    kms_deletion_days: int = Field(30, ge=7, le=30, description="days in which a deleted key can still be had back")
    valkey: Valkey = Field(Valkey(), description="the shared store of KV metadata")
    lustre: Lustre | None = Field(None, description="FSx for Lustre; none when absent")

    @model_validator(mode="after")
    def _consistent(self) -> Storage:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.prefix and "--" in self.prefix:
            yield f"prefix is {self.prefix!r}; leave out the double hyphen, which S3 keeps for names of its own"
        if self.prefix and self.prefix.startswith(("xn-", "sthree-", "amzn-s3-demo-")):
            yield f"prefix is {self.prefix!r}; S3 refuses names that begin so: take another"
