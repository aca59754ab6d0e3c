"""Where clients come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from infra.config.group import DnsName, Group


class Entry(Group):
    """The one way in for clients, always with TLS.

    The certificate is that of `tlsSecret`, or cert-manager's by `issuer`, or else one of the stack's own CA.
    """

    kind: Literal["service", "ingress", "gatewayApi"] = Field("service", description="what clients connect to")
    host: DnsName | None = Field(None, description="DNS name that clients use; the service's own inside the cluster")
    addresses: list[str] = Field([], description="IP addresses that the stack's own certificate is also good for")
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field("ClusterIP", description="of kind service")
    node_port: int | None = Field(None, ge=1, le=65535, description="port of service type NodePort; any when absent")
    class_name: str | None = Field(None, min_length=1, description="IngressClass, GatewayClass or load balancer class")
    tls_secret: DnsName | None = Field(None, description="Secret in the namespace with tls.crt and tls.key")
    issuer: DnsName | None = Field(None, description="cert-manager's issuer of the certificate")
    issuer_kind: Literal["ClusterIssuer", "Issuer"] = Field("ClusterIssuer", description="kind of `issuer`")
    annotations: dict[str, str] = Field({}, description="of the Service, Ingress or Gateway, for its controller")

    @model_validator(mode="after")
    def _consistent(self) -> Entry:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.tls_secret and self.issuer:
            yield "tlsSecret and issuer exclude each other: set one"
        if self.kind != "service" and not self.host:
            yield f"kind {self.kind} needs host, the DNS name that clients use"
        if self.kind == "gatewayApi" and not self.class_name:
            yield "kind gatewayApi needs className, the GatewayClass"
        if self.issuer and not self.host:
            yield "issuer needs host, the DNS name that the certificate is for"
        if self.node_port and (self.kind, self.service_type) != ("service", "NodePort"):
            yield "nodePort is only for kind service with serviceType NodePort"
