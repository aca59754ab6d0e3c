"""The group of charts: what runs in the cluster beside the stack's own roles, by version and digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.config.group import Group

Sha256 = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Version = Annotated[str, Field(pattern=r"^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$")]


class Chart(Group):
    """Another release of a chart than the pinned one."""

    version: Version = Field(description="the chart's version")
    digest: Sha256 | None = Field(
        None, description="of its archive, or its manifest in an OCI registry; what was first seen when absent"
    )


class Charts(Group):
    """Of the aws target. What runs in the cluster beside the roles; each release is pinned, and can be pinned anew."""

    gpu: Literal["devicePlugin", "operator", "none"] = Field(
        "devicePlugin",
        description="who gives GPUs to pods: NVIDIA's device plugin, for AMIs with a driver (AL2023 NVIDIA); its "
        "operator, which brings the driver; or the AMI itself (Bottlerocket)",
    )
    external_dns: bool = Field(False, description="whether external-dns runs, for other Services and Ingresses")
    mirror: str | None = Field(
        None, pattern=r"^oci://[\w.:/-]+$", description="OCI registry and prefix that holds all of the charts"
    )
    load_balancer_controller: Chart | None = Field(None, description="aws-load-balancer-controller")
    cert_manager: Chart | None = Field(None, description="cert-manager")
    device_plugin: Chart | None = Field(None, description="nvidia-device-plugin")
    gpu_operator: Chart | None = Field(None, description="gpu-operator")
    efa_plugin: Chart | None = Field(None, description="aws-efa-k8s-device-plugin")
    dcgm_exporter: Chart | None = Field(None, description="dcgm-exporter")
    keda: Chart | None = Field(None, description="keda")
    external_dns_chart: Chart | None = Field(None, description="external-dns")
    karpenter: Chart | None = Field(None, description="karpenter and karpenter-crd, of one version")
    prometheus: Chart | None = Field(None, description="kube-prometheus-stack")

    @model_validator(mode="after")
    def _consistent(self) -> Charts:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.device_plugin and self.gpu != "devicePlugin":
            yield f"devicePlugin is set but gpu is {self.gpu}: leave it out, or set gpu to devicePlugin"
        if self.gpu_operator and self.gpu != "operator":
            yield f"gpuOperator is set but gpu is {self.gpu}: leave it out, or set gpu to operator"
        if self.external_dns_chart and not self.external_dns:
            yield "externalDnsChart is set but externalDns is false: leave it out, or set externalDns to true"
