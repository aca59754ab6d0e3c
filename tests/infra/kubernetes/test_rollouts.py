"""Waiting for workloads, before a kubectl that says what it is told; the real one is asked by tests/kubernetes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.kubernetes.rollouts import MISSING, RolloutError, RolloutsProvider, await_address, await_rollouts

SAYS = (
    '#!/bin/sh\necho "$@" >> {calls}\ncase "$*" in *broken*) echo "error: timed out" >&2; exit 1;; esac\ncat {state}\n'
)
PROPS = {
    "kubeconfig": "~/config",
    "context": "here",
    "namespace": "ours",
    "workloads": {"deployment/gateway": "1", "statefulset/kv": "2"},
    "seconds": 30,
}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What kubectl was called with, a line each."""
    program = tmp_path / "kubectl"
    program.write_text(SAYS.format(calls=tmp_path / "calls", state=tmp_path / "state"))
    program.chmod(0o755)
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", "/home/ada")
    return tmp_path / "calls"


def test_each_workload_of_the_stacks_namespace_is_asked_for(calls: Path) -> None:
    assert RolloutsProvider().create(PROPS).outs == {**PROPS, "address": ""}
    first, second = calls.read_text().splitlines()
    assert first.startswith("--kubeconfig=/home/ada/config --context=here --namespace=ours rollout status deployment/")
    assert "rollout status statefulset/kv --timeout=" in second


def test_one_that_does_not_get_there_is_named(calls: Path) -> None:
    with pytest.raises(RolloutError, match=r"deployment/broken is not what the stack says after 30 s: timed out"):
        await_rollouts(["kubectl"], ["deployment/gateway", "deployment/broken", "statefulset/kv"], 30)
    assert len(calls.read_text().splitlines()) == 2


def test_the_way_in_has_the_address_that_a_load_balancer_gave_it(calls: Path) -> None:
    calls.with_name("state").write_text("lb.example.com 203.0.113.7")
    made = RolloutsProvider().create({**PROPS, "balanced": "gateway"})
    assert made.outs == {**PROPS, "balanced": "gateway", "address": "lb.example.com"}
    assert "--namespace=ours get service gateway --output=jsonpath=" in calls.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("service", "why"), [("gateway", "look at its events"), ("broken", "timed out")], ids=["no address", "no answer"]
)
def test_a_way_in_without_an_address_is_named(calls: Path, service: str, why: str) -> None:
    with pytest.raises(RolloutError, match=rf"service/{service} has no address after 0 s: .*{why}"):
        await_address(["kubectl"], service, 0)
    assert len(calls.read_text().splitlines()) == 1


def test_without_kubectl_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RolloutError) as raised:
        await_rollouts(["kubectl"], ["deployment/gateway"], 30)
    assert str(raised.value) == MISSING


def workload(generation: int, **status: int) -> dict[str, object]:
    return {"metadata": {"generation": generation}, "status": status}


DONE = workload(3, observedGeneration=3, replicas=2, updatedReplicas=2)


@pytest.mark.parametrize(
    ("changed", "state", "waits"),
    [
        pytest.param({}, "", False, id="nothing"),
        pytest.param({"seconds": 9}, DONE, False, id="only the patience"),
        pytest.param({"workloads": {}}, DONE, True, id="a workload"),
        pytest.param({"balanced": "gateway"}, DONE, True, id="the way in"),
        pytest.param({}, {"items": [DONE, DONE]}, False, id="all are done"),
        pytest.param({}, {"items": [DONE, workload(4, observedGeneration=3)]}, True, id="not seen by its controller"),
        pytest.param(
            {}, workload(4, observedGeneration=4, replicas=3, updatedReplicas=1), True, id="left by one that failed"
        ),
    ],
)
def test_what_changes_or_rolls_is_waited_for(
    calls: Path, changed: dict[str, object], state: object, waits: bool
) -> None:
    calls.with_name("state").write_text(json.dumps(state) if state else "")
    assert RolloutsProvider().diff("rollouts", PROPS, {**PROPS, **changed}).changes is waits


def test_a_preview_without_a_cluster_is_a_preview(calls: Path) -> None:
    away = {**PROPS, "workloads": {"deployment/broken": "1"}}
    assert RolloutsProvider().diff("rollouts", away, away).changes is False
    assert calls.exists()


def test_a_kubeconfig_may_be_its_content(calls: Path) -> None:
    """A cluster that the stack makes has no file: its kubeconfig lies in one of its own while kubectl runs."""
    made = RolloutsProvider().create({**PROPS, "kubeconfig": '{"apiVersion": "v1"}'})
    assert made.outs is not None
    assert made.outs["kubeconfig"] == '{"apiVersion": "v1"}'
    used = Path(calls.read_text().split()[0].removeprefix("--kubeconfig="))
    assert used.name.startswith("kubeconfig-")
    assert not used.exists()
