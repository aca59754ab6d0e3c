"""What is declared for a cluster: locked down, and rolled only by what it reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.kubernetes.autoscaling import scaled_roles
from infra.kubernetes.names import ROLES
from infra.kubernetes.plan import Plan
from infra.kubernetes.stack import manifests
from infra.kubernetes.workers import rollout_step
from tests.infra.kubernetes.stacks import GPUS, STACKS, found, merged, plan, pod


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("role", ROLES)
def test_no_pod_may_do_more_than_it_must(role: str, name: str) -> None:
    template = pod(merged(STACKS[name]), role)
    spec = template["spec"]
    assert (spec["automountServiceAccountToken"], spec["serviceAccountName"]) == (False, role)
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "@sha256:" in container["image"]
        assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]
    assert not any("hostPath" in volume for volume in spec["volumes"])


def names_read(made: Plan, role: str) -> list[str]:
    return [source["configMapRef"]["name"] for source in pod(made, role)["spec"]["containers"][0]["envFrom"]]


@pytest.mark.parametrize(
    ("group", "rolled"),
    [
        ({"scheduler": {"maxQueue": 1}}, {"scheduler"}),
        ({"prefill": {"maxBatchTokens": 4096}}, {"prefill-worker"}),
        ({"decode": {"idleWaitMs": 1.0}}, {"decode-worker"}),
        ({"decode": {"maxTokens": 9}}, {"decode-worker", "gateway"}),
        ({"kv": {"ttlSeconds": 99.0}}, {"kv", "prefill-worker", "decode-worker"}),
        ({"gateway": {"maxInflight": 9}}, {"gateway"}),
        ({"objectives": {"ttftSeconds": 1.0}}, set()),
    ],
)
def test_a_change_rolls_exactly_the_pods_that_read_it(group: dict[str, Any], rolled: set[str]) -> None:
    before, after = plan(), plan(**group)
    assert {role for role in ROLES if pod(before, role) != pod(after, role)} == rolled
    for role in rolled:
        assert names_read(before, role) != names_read(after, role), "the ConfigMap's name tells its content"


def test_whose_replicas_are_left_alone() -> None:
    assert scaled_roles(merged(STACKS["priorities"]).config) == ["decode-worker", "gateway"]


def test_a_pod_has_the_time_that_its_drain_takes() -> None:
    made = merged({"kubernetes": {"drainSeconds": 90.5, "preStopSeconds": 7}})
    spec = pod(made, "decode-worker")["spec"]
    assert spec["terminationGracePeriodSeconds"] > 90.5 + 7
    assert spec["containers"][0]["lifecycle"]["preStop"] == {"sleep": {"seconds": 7}}
    assert found(made, "ConfigMap", names_read(made, "kv")[0])["data"]["DRAIN_SECONDS"] == "90.5"


@pytest.mark.parametrize("role", ROLES)
def test_a_busy_role_is_not_taken_for_a_dead_one(role: str) -> None:
    container = pod(plan(), role)["spec"]["containers"][0]
    live, ready = container["livenessProbe"], container["readinessProbe"]
    assert (live["httpGet"]["path"], ready["httpGet"]["path"]) == ("/health", "/ready")
    assert live["timeoutSeconds"] >= 10
    assert live["periodSeconds"] * live["failureThreshold"] >= 60


@pytest.mark.parametrize(("gpus", "strategy"), [({}, (1, 0)), (GPUS, (0, 1)), ({**GPUS, "surge": True}, (1, 0))])
def test_a_rollout_does_not_wait_for_gpus_that_are_taken(gpus: dict[str, Any], strategy: tuple[int, int]) -> None:
    spec = found(merged({"kubernetes": {"decode": gpus}}), "Deployment", "decode-worker")["spec"]
    rolling = spec["strategy"]["rollingUpdate"]
    assert (rolling["maxSurge"], rolling["maxUnavailable"]) == strategy


def test_both_phases_take_the_same_number_of_steps() -> None:
    assert [rollout_step(n, 2) for n in (2, 3, 6)] == [1, 2, 3]
    made = plan(prefill={"replicas": 2}, decode={"replicas": 6})
    assert found(made, "Deployment", "decode-worker")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 3


def test_what_a_gpu_worker_asks_for() -> None:
    spec = pod(merged(STACKS["gpus"]), "prefill-worker")["spec"]
    limits = spec["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "8"
    assert limits["vpc.amazonaws.com/efa"] == "4"
    assert limits["hugepages-2Mi"] == "5120Mi"
    assert spec["runtimeClassName"] == "nvidia"
    check = spec["initContainers"][0]
    assert check["command"][2:] == [
        *("services.worker.gpu_check", "--count", "8"),
        *("--product", "NVIDIA H100 80GB HBM3", "--driver", "570.86", "--ecc", "on"),
    ]
    assert check["resources"] == spec["containers"][0]["resources"], "or it would see no GPU"


def test_what_a_pod_writes_to_its_node_is_kept_for_it() -> None:
    def kept(made: Plan, role: str) -> object:
        asked = pod(made, role)["spec"]["containers"][0]["resources"]
        assert asked["requests"]["ephemeral-storage"] == asked["limits"]["ephemeral-storage"]
        return asked["limits"]["ephemeral-storage"]

    made = merged({"kubernetes": {"modelVolume": {"fetch": True, "size": "20Gi"}}})
    assert kept(plan(), "kv") == f"{64 + 256}Mi", "/tmp and the log"
    assert kept(plan(), "decode-worker") == f"{1024 + 64 + 256}Mi", "not /dev/shm, which is memory"
    assert kept(made, "decode-worker") == f"{20 * 1024 + 1024 + 64 + 256}Mi"


def test_a_pods_own_address_is_in_its_settings() -> None:
    container = pod(plan(), "decode-worker")["spec"]["containers"][0]
    own = {one["name"]: one for one in container["env"]}
    assert own["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    assert own["ADVERTISE_URL"]["value"] == "https://$(POD_IP):8000"
    assert own["INSTANCE"]["value"] == "$(POD_NAME)"
    assert list(own)[:2] == ["POD_NAME", "POD_IP"], "a variable is only put into those that follow it"


def test_the_revision_is_on_every_pod() -> None:
    for role in ROLES:
        assert pod(plan(), role)["metadata"]["labels"]["diphase.dev/revision"] == "0123abc"


def test_a_fetched_model_is_written_by_its_init_container_alone() -> None:
    made = merged(STACKS["fetch"])
    for role in ("gateway", "prefill-worker", "decode-worker"):
        spec = pod(made, role)["spec"]
        fetch = spec["initContainers"][-1]
        assert fetch["volumeMounts"][0]["readOnly"] is False
        assert next(m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "model")["readOnly"] is True
        assert "443" in json.dumps(found(made, "NetworkPolicy", role)["spec"]["egress"])
    assert "443" not in json.dumps(found(made, "NetworkPolicy", "kv")["spec"]["egress"])


def test_objects_of_two_stacks_differ() -> None:
    names = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests(plan())]
    assert len(names) == len(set(names))
    assert all(namespace == "diphase-test" for kind, namespace, _ in names if kind != "Namespace")
