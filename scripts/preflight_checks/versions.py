"""Whether EKS still has the versions that the stack pins: the cluster's, its add-ons', its nodes' AMI."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from infra.config.aws.capacity import GpuPool, Pool
from infra.config.aws.rules import KEYS
from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "versions"
STANDARD = "STANDARD_SUPPORT"
SHOWN = 3
# Keys of cluster.addons → EKS's names.
ADDONS = {
    "vpcCni": "vpc-cni",
    "coredns": "coredns",
    "kubeProxy": "kube-proxy",
    "ebsCsi": "aws-ebs-csi-driver",
    "podIdentity": "eks-pod-identity-agent",
    "nodeMonitoring": "eks-node-monitoring-agent",
}


class Facts(msgspec.Struct, frozen=True):
    """`support` is EKS's word for the cluster's version, `standard` those in standard support; `addons` the builds of
    each, newest first; `images` those of the AMI parameters that are there."""

    support: str | None
    standard: list[str]
    addons: dict[str, list[str]]
    images: list[str]


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    eks, ssm, version = cloud.client("eks"), cloud.client("ssm"), wanted.config.cluster.version
    versions = {
        one["clusterVersion"]: one["versionStatus"]
        for page in eks.get_paginator("describe_cluster_versions").paginate(includeAll=True)
        for one in page["clusterVersions"]
    }
    addons: dict[str, list[str]] = {}
    for name in ADDONS.values():
        pages = eks.get_paginator("describe_addon_versions").paginate(kubernetesVersion=version, addonName=name)
        addons[name] = [
            build["addonVersion"] for page in pages for one in page["addons"] for build in one["addonVersions"]
        ]
    found = ssm.get_parameters(Names=sorted(set(_images(wanted).values())))["Parameters"]
    standard = sorted((one for one, status in versions.items() if status == STANDARD), key=_number)
    return Facts(versions.get(version), standard, addons, [one["Name"] for one in found])


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    cluster = wanted.config.cluster
    if facts.support != STANDARD:
        said = (facts.support or "unknown here").lower().replace("_", " ")
        found = f"cluster.version {cluster.version} is {said}"
        yield Finding(NAME, "fault", found, f"take one in standard support: {', '.join(facts.standard)}")
    else:
        yield Finding(NAME, "ok", f"EKS {cluster.version} is in standard support")
    pinned = cluster.addons.model_dump(by_alias=True)
    for key, name in ADDONS.items():
        offered = facts.addons.get(name, [])
        if pinned[key] not in offered:
            newest = ", ".join(offered[:SHOWN]) or "none is offered for this version of EKS"
            found = f"cluster.addons.{key}: {name} {pinned[key]} is not offered for EKS {cluster.version}"
            yield Finding(NAME, "fault", found, f"take one that is: {newest}")
    for key, name in _images(wanted).items():
        if name not in facts.images:
            advice = "take a release of awslabs/amazon-eks-ami's list, of the nodes' version of Kubernetes"
            yield Finding(NAME, "fault", f"{key}.amiRelease: there is no image {name} in this region", advice)


def _images(wanted: Wanted) -> dict[str, str]:
    """The parameter of each pool's AMI, by the pool's key."""
    capacity = wanted.config.capacity
    pools: dict[str, Pool] = {"system": capacity.system}
    pools |= {KEYS[name]: pool for name, pool in capacity.gpu_pools.items()}
    return {f"capacity.{key}": parameter(pool) for key, pool in pools.items()}


def parameter(pool: Pool) -> str:
    """Where EKS publishes the image of a release; as Karpenter asks for it (AL2023.resolvePath)."""
    release, _, date = pool.ami_release.rpartition("-")
    version = release.rpartition(".")[0]
    kind = "nvidia" if isinstance(pool, GpuPool) else "standard"
    name = f"amazon-eks-node-al2023-x86_64-{kind}-{version}-v{date}"
    return f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/{kind}/{name}/image_id"


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


CHECK = Check(
    NAME,
    "EKS has the cluster's version in standard support, the pinned add-ons for it, and the nodes' AMI release",
    ("eks:DescribeClusterVersions", "eks:DescribeAddonVersions", "ssm:GetParameters"),
    gather,
    judge,
)
