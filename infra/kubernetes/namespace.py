"""What a stack's pods live in: the locked-down namespace, their accounts and priorities, the model's volume. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from infra.kubernetes.names import COMMON_LABELS, MANIFEST, ROLES, Role
from infra.kubernetes.plan import Plan
from infra.kubernetes.pod import priority_class
from infra.kubernetes.volumes import CLAIM
from infra.kubernetes.workload import UNAWAITED

# Also for workers with GPUs or EFA: their devices come from device plugins, which need none of what this forbids.
POD_SECURITY = "restricted"


def manifests(plan: Plan) -> Iterator[MANIFEST]:
    """The namespace first, then what is in it or beside it."""
    names = plan.names
    security = {f"pod-security.kubernetes.io/{mode}": POD_SECURITY for mode in ("enforce", "audit", "warn")}
    labels = {**names.metadata("")["labels"], **security}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.namespace, "labels": labels}}
    for role in ROLES:
        yield {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": names.metadata(role, role),
            "automountServiceAccountToken": False,  # no role calls the API, so there are no RBAC rules either
        }
    yield from _priority_classes(plan)
    if plan.config.kubernetes.model_volume.host_path:
        yield from _model_folder(plan)


def _priority_classes(plan: Plan) -> Iterator[MANIFEST]:
    priority = plan.config.kubernetes.priority
    values: dict[Role, int | None] = {"gateway": priority.front, "decode-worker": priority.workers}
    for role, value in values.items():
        name = priority_class(plan.config, plan.names, role)
        if name is not None:
            yield {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": _beside(plan, name),
                "value": value,
                "description": f"Pods of the stack {plan.names.stack} in {plan.names.namespace}",
            }


def _model_folder(plan: Plan) -> Iterator[MANIFEST]:
    """A folder of the nodes, bound to the stack's claim; pods may not mount it themselves."""
    volume, name = plan.config.kubernetes.model_volume, f"{plan.names.namespace}-model"
    bound = {"storageClassName": "", "accessModes": ["ReadOnlyMany"]}
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": _beside(plan, name),
        "spec": {
            **bound,
            "capacity": {"storage": volume.size},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": volume.host_path, "type": "Directory"},
            "claimRef": {"namespace": plan.names.namespace, "name": CLAIM},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": plan.names.metadata(CLAIM, annotations=UNAWAITED),
        "spec": {**bound, "volumeName": name, "resources": {"requests": {"storage": volume.size}}},
    }


def _beside(plan: Plan, name: str) -> dict[str, object]:
    """Metadata of what belongs to no namespace."""
    return {"name": name, "labels": {"app.kubernetes.io/instance": plan.names.stack, **COMMON_LABELS}}
