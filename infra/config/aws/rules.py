"""Rules between the groups of the aws target: a sentence for each that is broken, beginning with the key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.config.aws.capacity import GpuPool, Pool, PoolName
from infra.config.aws.network import overlapping
from infra.hardware import INSTANCE_TYPES, instance_type

if TYPE_CHECKING:
    from infra.config.stack import StackConfig

KEYS: dict[PoolName, str] = {"prefill": "prefill", "decode": "decode", "long-prompt": "longPrompt"}


def faults(config: StackConfig) -> Iterator[str]:
    """What an aws stack must have, and what its groups must agree on."""
    yield from _missing(config)
    yield from _zones(config)
    yield from _addresses(config)
    yield from _versions(config)
    yield from _pools(config)
    if config.region.deploy_role is None and not config.cluster.admins:
        yield (
            "cluster.admins is missing; nobody could use the cluster, this program included: list the IAM role that "
            "deploys, or set region.deployRole"
        )
    if config.region.name in config.registry.replicate_to:
        yield f"registry.replicateTo has {config.region.name}, where the images are already: leave it out"
    if config.region.deploy_role and config.region.deploy_role in config.cluster.readers:
        yield "cluster.readers has region.deployRole, which does everything: leave it out"


def _missing(config: StackConfig) -> Iterator[str]:
    if config.region.name is None:
        yield "region.name is missing; set it to the region's, such as us-east-1"
    if config.region.account is None:
        yield "region.account is missing; `aws sts get-caller-identity` says the account's twelve digits"
    if not config.network.zones:
        yield "network.zones is missing; `aws ec2 describe-availability-zones` lists them: take two or three"
    for key in ("prefill", "decode"):
        if getattr(config.capacity, key) is None:
            yield f"capacity.{key} is missing; `diphase capacity` finds the cheapest instance types that will do"


def _zones(config: StackConfig) -> Iterator[str]:
    name, zones = config.region.name, config.network.zones
    for zone in zones:
        if name is not None and zone[:-1] != name:
            yield f"network.zones has {zone}, which is not in {name}: take zones of region.name"
    for pool, wanted in config.capacity.gpu_pools.items():
        if wanted.zone is not None and zones and wanted.zone not in zones:
            yield f"capacity.{KEYS[pool]}.zone is {wanted.zone}; no subnet is there: take one of {', '.join(zones)}"


def _addresses(config: StackConfig) -> Iterator[str]:
    network, services = config.network, config.cluster.service_cidr
    for key, block in (("cidr", network.cidr), ("podCidr", network.pod_cidr)):
        if overlapping(block, services):
            yield f"cluster.serviceCidr ({services}) overlaps network.{key} ({block}); take a block apart"
    if network.nat == "none":
        needed = {"ec2", "ecr.api", "ecr.dkr", "eks", "eks-auth", "logs", "sts"} - set(network.endpoints)
        if needed:
            yield (
                f"network.endpoints lacks {', '.join(sorted(needed))}, which nodes need where network.nat is none: add "
                "them, or set nat to zone or one"
            )


def _versions(config: StackConfig) -> Iterator[str]:
    version = config.cluster.version
    pools: dict[str, Pool] = {"system": config.capacity.system}
    pools |= {KEYS[name]: pool for name, pool in config.capacity.gpu_pools.items()}
    for key, pool in pools.items():
        release = pool.ami_release.rpartition(".")[0]
        # Kubernetes, version skew policy: a kubelet may be up to three minor versions older, never newer.
        behind = int(version.partition(".")[2]) - int(release.partition(".")[2])
        if not 0 <= behind <= 3:
            yield (
                f"capacity.{key}.amiRelease is {pool.ami_release}; nodes of a cluster of {version} are of that version "
                "or up to three older: take a release of it"
            )


def _pools(config: StackConfig) -> Iterator[str]:
    system = config.capacity.system.instance_type
    if system in INSTANCE_TYPES:
        yield f"capacity.system.instanceType is {system}, which has GPUs: take one without, such as m7i.xlarge"
    elif system.partition(".")[0].rstrip("bden")[-1:] == "g":
        yield f"capacity.system.instanceType is {system}, of the Arm architecture: images are x86-64, take m7i.xlarge"
    fabric: dict[str, str] = {}
    for name, pool in config.capacity.gpu_pools.items():
        key = f"capacity.{KEYS[name]}"
        try:
            efa = instance_type(pool.instance_type).efa_interfaces
        except ValueError as unknown:
            yield f"{key}.instanceType: {unknown}"
            continue
        if efa and pool.zone is None:
            yield f"{key}.zone is missing; {pool.instance_type} has EFA, which does not cross zones: name one"
        elif efa and pool.zone:
            fabric[key] = pool.zone
        yield from _workers(config, name, pool, efa)
    if len(set(fabric.values())) > 1:
        said = ", ".join(f"{key}.zone is {zone}" for key, zone in fabric.items())
        yield f"{said}; KV moves over EFA, which does not cross zones: put them into one"


def _workers(config: StackConfig, name: PoolName, pool: GpuPool, efa: int) -> Iterator[str]:
    """What pods of a phase ask for must fit a node of its pool."""
    if name == "long-prompt":
        return
    pod = config.kubernetes.prefill if name == "prefill" else config.kubernetes.decode
    gpus = instance_type(pool.instance_type).gpus
    if pod.gpu.count > gpus:
        yield f"kubernetes.{name}.gpu.count is {pod.gpu.count}; {pool.instance_type} has {gpus}: take fewer"
    if pod.efa > efa:
        yield f"kubernetes.{name}.efa is {pod.efa}; {pool.instance_type} has {efa} EFA interfaces: take fewer"
