"""The provider: of one cluster, named by kubeconfig and context, never of whichever kubectl happens to talk to."""

from __future__ import annotations

import json
from importlib import metadata

import pulumi

from infra.kubernetes.access import Access

BURST, QUERIES_PER_SECOND = 120, 50


class Cluster(pulumi.ProviderResource):
    """Pulumi's Kubernetes provider, strict: without an explicit context nothing is made."""

    def __init__(self, name: str, access: Access, namespace: str) -> None:
        props: dict[str, object] = {
            "kubeconfig": access.kubeconfig,
            "context": access.context,
            "namespace": namespace,
            # A new address or new credentials are no new cluster: only this replaces what the stack has made.
            "clusterIdentifier": access.identifier,
            "strictMode": True,
            "enableServerSideApply": True,
            # Certificates are replaced in place, for pods read them again; what rolls pods has a new name anyway.
            "enableSecretMutable": True,
            "enableConfigMapMutable": True,
            "kubeClientSettings": {"burst": BURST, "qps": QUERIES_PER_SECOND},
        }
        # A provider's settings travel as JSON.
        texts = {key: pulumi.Output.from_input(value).apply(_text) for key, value in props.items()}
        options = pulumi.ResourceOptions(version=metadata.version("pulumi-kubernetes"))
        super().__init__("kubernetes", name, texts, options)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
