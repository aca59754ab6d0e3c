"""Wrong stack files, run as Pulumi runs the program: each is refused with key and remedy, and nothing was declared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks
from pulumi.runtime.settings import SETTINGS
from pulumi.runtime.stack import run_pulumi_func

from infra.__main__ import main
from infra.config import NAMESPACE, ConfigError, StackConfig
from tests.infra.aws.recorder import Mocks, Monitor, Recorded
from tests.infra.aws.region import changed
from tests.infra.aws.terraform import Provider

PROJECT = Path(__file__).parents[3]
ROLE = "arn:aws:iam::111122223333:role/diphase-deploy"
ZONES = [f"us-east-1{letter}" for letter in "abcde"]
# Changes to the file of prod-us-east-1; the key that the refusal must begin with; what it must advise.
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"target": "aw"}, "target is 'aw'", "'local', 'kubernetes' or 'aws'"),
    ({"target": None}, "target is missing", "set it with `pulumi config set diphase:target"),
    ({"netwrok": {"nat": "one"}}, "netwrok is unknown", "did you mean network?"),
    ({"region": "us-east-1"}, "region must be a group of keys", "name, account, environment"),
    ({"region.name": "eu-west-1"}, "network.zones has us-east-1a", "take zones of region.name"),
    ({"region.name": None}, "region.name is missing", "such as us-east-1"),
    ({"region.account": None}, "region.account is missing", "`aws sts get-caller-identity`"),
    ({"region.deployRole": None}, "cluster.admins is missing", "or set region.deployRole"),
    ({"region.maxRetries": 0}, "region.maxRetries is 0", "greater than or equal to 1"),
    ({"cluster.readers": [ROLE]}, "cluster.readers has region.deployRole", "leave it out"),
    ({"cluster.publicCidrs": ["203.0.113.7"]}, "cluster.publicCidrs.0: '203.0.113.7'", "write 203.0.113.7/32"),
    ({"cluster.publicCidrs": ["0.0.0.0/1"]}, "cluster: publicCidrs has 0.0.0.0/1", "name the networks that deploy"),
    ({"cluster.serviceCidr": "172.20.0.0"}, "cluster.serviceCidr: '172.20.0.0'", "a block such as 10.0.0.0/16"),
    ({"cluster.serviceCidr": "100.64.0.0/16"}, "cluster.serviceCidr (100.64.0.0/16)", "take a block apart"),
    ({"cluster.version": "1.39"}, "capacity.system.amiRelease is 1.35", "take a release of it"),
    ({"cluster.kmsDeletionDays": 5}, "cluster.kmsDeletionDays is 5", "greater than or equal to 7"),
    ({"network.zones": ZONES}, "network.zones is", "at most 4 items"),
    ({"network.zones": ["us-east-1a", "us-east-1c"]}, "capacity.prefill.zone is us-east-1b", "take one of us-east-1a"),
    ({"network.zones": None}, "network.zones is missing", "`aws ec2 describe-availability-zones`"),
    ({"network.peers": ["10.0.0.0/8"]}, "network: cidr (10.30.0.0/16) overlaps", "that no other network has"),
    ({"network.cidr": "10.30.0.0"}, "network.cidr: '10.30.0.0' has no length", "a block such as"),
    ({"network.podCidr": "100.64.0.0/20"}, "network: podCidr is 100.64.0.0/20", "between /16 and /18"),
    ({"network.nat": "two"}, "network.nat is 'two'", "'zone', 'one' or 'none'"),
    ({"capacity.prefill": None}, "capacity.prefill is missing", "`diphase capacity` finds"),
    ({"capacity.prefil": {}}, "capacity.prefil is unknown", "did you mean prefill?"),
    ({"capacity.prefill.nodes": 3}, "capacity.prefill: nodes (3)", "must lie between min (2) and max (2)"),
    ({"capacity.prefill.reservationId": None}, "capacity.prefill: purchase reservation", "`diphase preflight` lists"),
    ({"capacity.decode.purchase": "spot"}, "capacity.decode: reservationId is set", "set purchase to reservation"),
    ({"capacity.decode.placementGroup": True}, "capacity.decode: placementGroup", "Leave placementGroup out"),
    ({"capacity.decode.zone": "us-east-1c"}, "capacity.prefill.zone is us-east-1b", "put them into one"),
    ({"capacity.prefill.instanceType": "p9.48xlarge"}, "capacity.prefill.instanceType: 'p9", "take one of"),
    ({"capacity.system.max": 2}, "capacity.system: min (3)", "must not exceed max (2)"),
    ({"kubernetes.decode.gpu.count": 16}, "kubernetes.decode.gpu.count is 16", "take fewer"),
    ({"kubernetes.decode.efa": 32}, "kubernetes.decode.efa is 32", "take fewer"),
    ({"kubernetes.entry.serviceType": "NodePort"}, "kubernetes.entry.serviceType NodePort", "needs host or addresses"),
    ({"kv.poolMib": 2_000_000}, "kubernetes.prefill.memory (1500Gi)", "must hold kv.poolMib"),
    ({"kv.transport": "shm"}, "kv.transport is shm", "leave it out or set it to tcp"),
    ({"images.digests.worker": None}, "images.digests.worker is missing", "`diphase images push`"),
    ({"model.revision": "a/b"}, "model.revision is 'a/b'", "such as a commit"),
    ({"autoscaling.prefill": {"min": 3, "max": 4}}, "prefill.replicas (2)", "must lie between"),
    ({"autoscaling.decode": {"min": 2, "max": 4}}, "autoscaling.prometheusUrl is missing", "such as http://"),
    ({"registry.replicateTo": ["us-east-1"]}, "registry.replicateTo has us-east-1", "leave it out"),
    ({"registry.accountSettings": False}, "registry: replicateTo needs accountSettings", "true"),
    ({"edge.zoneId": None}, "edge: host and zoneId need each other", "set both"),
    ({"monitoring.emails": []}, "monitoring: budget needs emails", "who is told of it"),
    ({"storage.valkey.replicas": 9}, "storage.valkey.replicas is 9", "less than or equal to 5"),
]


def right() -> dict[str, Any]:
    values = yaml.safe_load((PROJECT / "stacks/Pulumi.prod-us-east-1.yaml").read_text())["config"]
    return {key.removeprefix(f"{NAMESPACE}:"): value for key, value in values.items()}


def run(provider: Provider, values: Mapping[str, Any], program: Callable[[], None]) -> tuple[list[str], list[Recorded]]:
    """Runs a program with a configuration as Pulumi gives it: the faults that it ended with, and what it declared."""
    mocked = Mocks(provider, {})
    monitor = Monitor(mocked)
    texts = {f"{NAMESPACE}:{key}": v if isinstance(v, str) else json.dumps(v) for key, v in values.items()}

    async def running() -> None:
        mocks.set_mocks(mocked, project="diphase", stack="prod-us-east-1", preview=True, monitor=monitor)
        SETTINGS.rpc_manager.clear()
        SETTINGS.outputs.clear()
        pulumi.runtime.set_all_config(texts)
        await run_pulumi_func(program)

    def alone() -> list[str]:
        try:
            asyncio.run(running())
        except ConfigError as refused:
            return refused.faults
        finally:
            pulumi.runtime.set_all_config({})
        return []

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(alone).result(), monitor.graph.resources


def test_the_file_that_is_made_wrong_is_right(provider: Provider) -> None:
    """And what is declared is seen: otherwise the others would prove nothing."""

    def program() -> None:
        pulumi.ComponentResource("diphase:aws:Region", str(StackConfig.load().region.name))

    faults, declared = run(provider, right(), program)
    assert faults == []
    assert [one.name for one in declared] == ["us-east-1"]


@pytest.mark.parametrize(("changes", "key", "remedy"), WRONG, ids=[key for _, key, _ in WRONG])
def test_it_is_refused_before_anything_is_declared(
    provider: Provider, changes: dict[str, Any], key: str, remedy: str
) -> None:
    faults, declared = run(provider, changed(changes, right()), lambda: main(PROJECT))
    assert any(fault.startswith(f"{NAMESPACE}:{key}") and remedy in fault for fault in faults), faults
    assert declared == []
