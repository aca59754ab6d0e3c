"""Programs that declare parts of a region, for tests of what the engine makes of them."""

from __future__ import annotations

from pathlib import Path

import pulumi

from infra.aws.encryption import Encryption, EncryptionArgs
from infra.aws.permissions.statement import Place
from infra.aws.provider import aws_provider
from infra.aws.storage import Storage, StorageArgs
from infra.config import StackConfig
from infra.kubernetes.access import Access
from infra.kubernetes.cluster import Cluster
from infra.kubernetes.objects import declare

SUBNETS, GROUPS = ["subnet-0a1b2c3d4e5f60718", "subnet-0b1c2d3e4f5061728"], ["sg-0a1b2c3d4e5f60718"]


def what_is_kept(_project: Path) -> None:
    """A key, buckets and the shared store."""
    config, stack = StackConfig.load(), pulumi.get_stack()
    region, kept = config.region, config.storage
    assert region.name is not None
    assert region.account is not None
    place = Place("aws", region.name, region.account)
    options = pulumi.ResourceOptions(providers=[aws_provider("aws", config, stack)])
    key = Encryption("region", EncryptionArgs(place, kept.kms_deletion_days, kept.protect), options).key
    prefix = f"diphase-{stack}-{region.account}"
    Storage("region", StorageArgs(kept, place, prefix, key, SUBNETS, GROUPS, kept.log_days), options)


def objects(_project: Path) -> None:
    """A few of a cluster that is said to be there: a Deployment has the field that the configuration says."""
    config = StackConfig.load()
    access = Access("{}", "kubeconfig", "test", "test")
    labels = {"app": "a"}
    container = {"name": "a", "image": "a", config.model.name: ["a"]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    spec["template"] |= {"spec": {"containers": [container]}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    place = {"name": "a", "namespace": "a"}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": spec}
    declare([namespace, workload], Cluster("cluster", access, "a"), {})
