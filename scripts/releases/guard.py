"""What a rollback must not replace or delete unless a person names it: clusters, data stores, keys. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from scripts.progress import Step

# Patterns of Pulumi types (package:module:Type), by what is lost with the resource.
KINDS = {
    "cluster": ("eks:*:Cluster", "aws:eks/cluster:Cluster"),
    "namespace": ("kubernetes:core/v1:Namespace",),
    "data store": (
        "aws:s3*:Bucket",
        "aws:s3*:BucketV2",
        "aws:s3*:DirectoryBucket",
        "aws:elasticache/*:ReplicationGroup",
        "aws:elasticache/*:Cluster",
        "aws:elasticache/*:ServerlessCache",
        "aws:efs/*:FileSystem",
        "aws:fsx/*:*FileSystem",
        "aws:ebs/volume:Volume",
        "aws:rds/*:*",
        "aws:dynamodb/table:Table",
        "aws:ecr/repository:Repository",
        "kubernetes:core/v1:PersistentVolume",
        "kubernetes:core/v1:PersistentVolumeClaim",
    ),
    "key": (
        "pulumi-python:dynamic/*:ApiKey",
        "pulumi-python:dynamic/*:Certificates",
        "aws:kms/key:Key",
        "aws:kms/replicaKey:ReplicaKey",
        "aws:secretsmanager/secret:Secret",
        "tls:*:PrivateKey",
        "random:*:RandomPassword",
        "random:*:RandomBytes",
        "random:*:RandomString",
    ),
}
LOSING = ("delete", "replace", "discard")


class Loss(NamedTuple):
    """A resource that would be replaced or deleted, and what it is."""

    name: str
    urn: str
    kind: str
    replaced: bool

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.urn}) would be {'replaced' if self.replaced else 'deleted'}"


def losses(steps: Iterable[Step]) -> list[Loss]:
    """Every guarded resource that the steps would take away, each once."""
    found: dict[str, Loss] = {}
    for step in steps:
        kind = kind_of(step.type)
        if kind and any(word in step.op for word in LOSING):
            # A replacement is several steps, one of which is called a deletion.
            replaced = "replace" in step.op or (step.urn in found and found[step.urn].replaced)
            found[step.urn] = Loss(step.urn.rpartition("::")[2], step.urn, kind, replaced)
    return list(found.values())


def refused(found: Sequence[Loss], allowed: Collection[str]) -> list[Loss]:
    """Those that nobody has named, by name or URN."""
    return [loss for loss in found if not {loss.name, loss.urn} & set(allowed)]


def kind_of(type_: str) -> str | None:
    """What is lost with a resource of this type; None where it is made anew from the program."""
    return next((kind for kind in KINDS if any(fnmatchcase(type_, pattern) for pattern in KINDS[kind])), None)
