"""Manifests as resources: each object is given to Pulumi's Kubernetes provider as Kubernetes itself has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi

from infra.kubernetes.names import MANIFEST

# What must be there before what: namespaces before what is in them, what pods read before the pods.
LAYERS: Sequence[frozenset[str]] = (
    frozenset({"Namespace", "PriorityClass", "PersistentVolume"}),
    frozenset(
        {
            "ServiceAccount",
            "NetworkPolicy",
            "ConfigMap",
            "Secret",
            "PersistentVolumeClaim",
            "Service",
            "Certificate",
        }
    ),
)
# What must come after everything else: scalers, which look at the workloads.
LAST = frozenset({"HorizontalPodAutoscaler", "ScaledObject"})
SECRET_FIELDS = {"Secret": ["data", "stringData"]}
# Beside what Kubernetes has: the name for Pulumi, where metadata.name is an output.
LOGICAL_NAME = "logicalName"
# Somebody who changed a field by hand does not keep it: `up` makes things what the stack says.
FORCE = {"pulumi.com/patchForce": "true"}


class KubernetesObject(pulumi.CustomResource):
    """One object of the cluster; `name` in Pulumi is kind/name, as kubectl has it."""

    spec: pulumi.Output[Any]
    status: pulumi.Output[Any]

    def __init__(self, manifest: MANIFEST, name: str, options: pulumi.ResourceOptions) -> None:
        api, kind = manifest["apiVersion"], manifest["kind"]
        token = f"kubernetes:{api if '/' in api else f'core/{api}'}:{kind}"
        metadata = {**manifest["metadata"], "annotations": {**FORCE, **manifest["metadata"].get("annotations", {})}}
        secret = pulumi.ResourceOptions(additional_secret_outputs=SECRET_FIELDS.get(kind))
        props = {"spec": None, "status": None, **manifest, "metadata": metadata}
        props.pop(LOGICAL_NAME, None)
        super().__init__(token, f"{kind.lower()}/{name}", props, pulumi.ResourceOptions.merge(options, secret))


def declare(
    manifests: Iterable[MANIFEST],
    provider: pulumi.ProviderResource,
    ignored: Mapping[str, Sequence[str]],
    after: Sequence[pulumi.Resource] = (),
) -> Mapping[str, KubernetesObject]:
    """Declare objects in their order of need, all `after` others; gives them by kind/name, such as service/gateway.

    `ignored` are fields that somebody else decides once an object is there: {"deployment/gateway": ["spec.replicas"]}.
    """
    layers: list[list[MANIFEST]] = [[] for _ in range(len(LAYERS) + 2)]
    for manifest in manifests:
        kind = manifest["kind"]
        middle = len(LAYERS) + (kind in LAST)
        layers[next((i for i, kinds in enumerate(LAYERS) if kind in kinds), middle)].append(manifest)
    made: dict[str, KubernetesObject] = {}
    for layer in layers:
        options = pulumi.ResourceOptions(provider=provider, depends_on=[*after, *made.values()])
        for manifest in layer:
            name = manifest.get(LOGICAL_NAME) or manifest["metadata"]["name"]
            key = f"{manifest['kind'].lower()}/{name}"
            own = pulumi.ResourceOptions(ignore_changes=list(ignored.get(key, [])))
            made[key] = KubernetesObject(manifest, name, pulumi.ResourceOptions.merge(options, own))
    return made
