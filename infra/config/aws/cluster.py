"""The group of the cluster: its version and add-ons, pinned; who reaches it, who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.config.aws.network import Block
from infra.config.aws.region import RoleArn
from infra.config.group import Group

Build = Annotated[str, Field(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")]
LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]
LOG_TYPES: list[LogType] = ["api", "audit", "authenticator", "controllerManager", "scheduler"]


class Addons(Group):
    """Releases of EKS add-ons; `aws eks describe-addon-versions --kubernetes-version …` lists those of a version."""

    vpc_cni: Build = Field("v1.21.1-eksbuild.3", description="addresses of pods, and their network policies")
    coredns: Build = Field("v1.14.3-eksbuild.3", description="names inside the cluster")
    kube_proxy: Build = Field("v1.35.3-eksbuild.18", description="Services; of the cluster's minor version, or older")
    ebs_csi: Build = Field("v1.64.0-eksbuild.1", description="volumes")
    pod_identity: Build = Field("v1.3.10-eksbuild.3", description="credentials of pods")
    node_monitoring: Build = Field("v1.4.0-eksbuild.2", description="what is wrong with a node, its GPUs included")


class Cluster(Group):
    """Of the aws target. The EKS cluster."""

    version: str = Field("1.35", pattern=r"^1\.\d{2}$", description="of Kubernetes, in EKS's standard support")
    public_cidrs: list[Block] = Field(
        [], description="from where its API is reached over the internet; only from inside the VPC when empty"
    )
    service_cidr: Block = Field("172.20.0.0/16", description="of Services; can't be changed, /12 to /24")
    admins: list[RoleArn] = Field([], description="IAM roles that may do everything in it, beside region.deployRole")
    readers: list[RoleArn] = Field([], description="IAM roles that may look at everything but Secrets")
    log_types: list[LogType] = Field(LOG_TYPES, description="what the control plane logs")
    addons: Addons = Field(Addons(), description="add-ons, each pinned")
    kms_deletion_days: int = Field(30, ge=7, le=30, description="days in which the deleted key can still be had back")

    @model_validator(mode="after")
    def _consistent(self) -> Cluster:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        wide = [block for block in self.public_cidrs if int(block.rpartition("/")[2]) < 8]
        if wide:
            yield f"publicCidrs has {wide[0]}, most of the internet; name the networks that deploy, or leave it out"
        if not 12 <= int(self.service_cidr.rpartition("/")[2]) <= 24:
            yield f"serviceCidr is {self.service_cidr}; EKS takes blocks between /12 and /24"
        proxy = self.addons.kube_proxy.removeprefix("v").split(".")
        if proxy[0] != "1" or int(proxy[1]) > int(self.version.partition(".")[2]):
            yield f"addons.kubeProxy is {self.addons.kube_proxy}, newer than version {self.version}: take one of it"
        both = set(self.admins) & set(self.readers)
        if both:
            yield f"readers has {min(both)}, which admins has too: leave it out of one"
