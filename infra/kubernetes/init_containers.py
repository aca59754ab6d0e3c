"""What a pod does before its role starts: look at its GPUs, fetch the model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.config import StackConfig
from infra.config.pods import Gpu
from infra.kubernetes.names import MODEL, Role
from infra.kubernetes.settings import FETCHED
from infra.kubernetes.volumes import model_volume, worker_pod

PYTHON = ["python", "-m"]


def of(
    config: StackConfig, role: Role, confined: Mapping[str, Any], resources: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The init containers of a role's pods, in order. They have what the role has, which costs nothing more."""
    worker = role.endswith("-worker")
    wanted: list[dict[str, Any]] = []
    if worker and worker_pod(config, role).gpu.count:
        wanted.append(
            {"name": "gpu-check", "command": [*PYTHON, "services.worker.gpu_check", *_expected(config, role)]}
        )
    if config.kubernetes.model_volume.fetch and (worker or role == "gateway"):
        mount = {**model_volume(config).mount, "readOnly": False}
        home = {"name": "HF_HOME", "value": str(MODEL / "hub")}  # the hub's client writes beside what it fetches
        wanted.append({"name": "model", "command": _fetch(config), "volumeMounts": [mount], "env": [home]})
    common = {
        "image": config.images.digests.worker,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": dict(confined),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": dict(resources),
    }
    return [{**common, **one} for one in wanted]


def _expected(config: StackConfig, role: Role) -> list[str]:
    gpu: Gpu = worker_pod(config, role).gpu
    found = ["--count", str(gpu.count)]
    found += ["--product", gpu.product] if gpu.product else []
    found += ["--driver", gpu.driver] if gpu.driver else []
    return found + ([] if gpu.ecc is None else ["--ecc", "on" if gpu.ecc else "off"])


def _fetch(config: StackConfig) -> list[str]:
    model = config.model
    command = [*PYTHON, "services.worker.model", model.source, "--cache", str(MODEL), "--link", str(MODEL / FETCHED)]
    return command + (["--revision", model.revision] if model.revision and "/" in model.source else [])
