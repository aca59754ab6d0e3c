"""Programs that declare parts of a region, for tests of what the engine makes of them."""

from __future__ import annotations

from pathlib import Path

import pulumi

from infra.aws.cluster import Cluster as EksCluster
from infra.aws.cluster import ClusterArgs
from infra.aws.encryption import Encryption, EncryptionArgs
from infra.aws.network import Network, NetworkArgs
from infra.aws.node_groups import NodePools, NodePoolsArgs
from infra.aws.permissions.statement import Place
from infra.aws.provider import aws_provider, tags
from infra.aws.registry import Registry, RegistryArgs
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


def foundation(_project: Path) -> None:
    """What a region stands on: network, cluster, nodes, images, and what it keeps."""
    config, stack = StackConfig.load(), pulumi.get_stack()
    region, kept, days, name = (
        config.region,
        config.storage,
        config.monitoring.log_days,
        f"diphase-{pulumi.get_stack()}",
    )
    assert region.name is not None
    assert region.account is not None
    place = Place("aws", region.name, region.account)
    options = pulumi.ResourceOptions(providers=[aws_provider("aws", config, stack)])
    lustre = kept.lustre is not None
    key = Encryption("region", EncryptionArgs(place, kept.kms_deletion_days, kept.protect, lustre), options).key
    network = Network("region", NetworkArgs(config.network, place, name, key, days, lustre), options)
    subnets, groups = network.subnets, network.groups
    prefix = kept.prefix or f"{name}-{region.account}"
    stores = StorageArgs(kept, place, prefix, key, list(subnets["private"].values()), [groups["store"]], kept.log_days)
    Storage("region", stores, options)
    Registry("region", RegistryArgs(config.registry, place, f"diphase/{stack}", key, kept.protect), options)
    asked = ClusterArgs(
        config=config.cluster,
        place=place,
        name=name,
        key=key,
        log_days=days,
        deploy_role=region.deploy_role,
        subnets=subnets["cluster"],
        pod_subnets=subnets["pods"],
        control_plane_group=groups["cluster"],
        node_group=groups["nodes"],
        protect=kept.protect,
    )
    cluster = EksCluster("region", asked, options)
    ready = [*network.ready, *cluster.ready]
    role, carried = cluster.node_role, tags(config, stack)
    NodePools(
        "region",
        NodePoolsArgs(config.capacity, cluster.name, role, subnets["private"], groups, key, carried, ready),
        options,
    )


def network(_project: Path) -> None:
    """The network of a region that has a Lustre file system."""
    config, stack = StackConfig.load(), pulumi.get_stack()
    region = config.region
    assert region.name is not None
    assert region.account is not None
    place = Place("aws", region.name, region.account)
    options = pulumi.ResourceOptions(providers=[aws_provider("aws", config, stack)])
    key = Encryption("region", EncryptionArgs(place, config.storage.kms_deletion_days, False), options).key
    Network("region", NetworkArgs(config.network, place, f"diphase-{stack}", key, 90, lustre=True), options)


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
