"""The page docs/region.md."""

from __future__ import annotations

from pathlib import Path

from infra.aws.cluster import Cluster, ClusterArgs
from infra.aws.encryption import Encryption, EncryptionArgs
from infra.aws.karpenter import Karpenter, KarpenterArgs
from infra.aws.network import Network, NetworkArgs
from infra.aws.node_groups import NodePools, NodePoolsArgs
from infra.aws.permissions.statement import Place
from infra.aws.provider import tags
from infra.aws.registry import Registry, RegistryArgs
from infra.aws.storage import Storage, StorageArgs
from infra.config import StackConfig
from scripts.cost import read
from scripts.region_docs.declared import declared
from scripts.region_docs.picture import mermaid

ROOT = Path(__file__).resolve().parents[2]
DOCS, STACK = ROOT / "docs", "prod-us-east-1"
INTRODUCTION = f"""\
# A region, drawn

<!-- Written by `python -m scripts.region_docs` from stacks/ and infra/aws/; change it there. -->

What is under the workloads of `{STACK}`, as its file declares it: a box for each component of
[infra/aws](../infra/aws), with the kinds of resources in it and how many. An arrow goes from
what must be there first to what waits for it. [aws.md](aws.md) says what each part is for.
"""


def region(config: StackConfig, stack: str) -> None:
    """Declare what is under the workloads of a stack."""
    place = Place("aws", config.region.name or "", config.region.account or "")
    name, days, protect = f"diphase-{stack}", config.monitoring.log_days, config.storage.protect
    lustre = config.storage.lustre is not None
    key = Encryption("region", EncryptionArgs(place, config.cluster.kms_deletion_days, protect, lustre)).key
    network = Network("network", NetworkArgs(config.network, place, name, key, days, lustre))
    groups, private = network.groups, network.subnets["private"]
    cluster = Cluster(
        "cluster",
        ClusterArgs(
            config=config.cluster,
            place=place,
            name=name,
            key=key,
            log_days=days,
            deploy_role=config.region.deploy_role,
            subnets=network.subnets["cluster"],
            pod_subnets=network.subnets["pods"],
            control_plane_group=groups["cluster"],
            node_group=groups["nodes"],
            protect=protect,
        ),
    )
    ready, marked = [*network.ready, *cluster.ready], tags(config, stack)
    NodePools(
        "nodes",
        NodePoolsArgs(config.capacity, cluster.name, cluster.node_role, private, groups, key, marked, ready),
    )
    if config.capacity.karpenter:
        roles = (cluster.node_role, cluster.node_role_name)
        Karpenter(
            "karpenter", KarpenterArgs(config.capacity, place, cluster.name, *roles, private, groups, key, marked)
        )
    Storage(
        "storage",
        StorageArgs(config.storage, place, name, key, list(private.values()), [groups["store"]], days),
    )
    Registry("registry", RegistryArgs(config.registry, place, name, key, protect))


def page() -> str:
    """The whole page."""
    config = read(ROOT / "stacks" / f"Pulumi.{STACK}.yaml")
    return f"{INTRODUCTION}\n```mermaid\n{mermaid(declared(lambda: region(config, STACK), STACK))}```\n"
