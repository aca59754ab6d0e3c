"""The policy pack under the real engine: what breaks a rule is refused, and what is right passes."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from scripts.engine import Engine
from scripts.faults import OperationFailed
from scripts.policies import PACK, packs
from tests.infra.project import ROOT, make_project, write_stack

LOGS = "aws:cloudwatch/logGroup:LogGroup"
GROUP, RULE = "aws:ec2/securityGroup:SecurityGroup", "aws:vpc/securityGroup%sRule:SecurityGroup%sRule"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = make_project(tmp_path / "project", monkeypatch)
    write_stack(made, "region", {"target": "aws"})
    return made


def preview(program: Callable[[], None], operation: str = "preview") -> Engine:
    engine = Engine("region", lambda _project: program())
    engine.run(operation, operation)
    return engine


def declare(type_: str, name: str, inputs: Mapping[str, Any], *needs: pulumi.Resource) -> pulumi.Resource:
    """A component of AWS's type: the engine judges its inputs as those of the resource, and asks no plugin."""
    options = pulumi.ResourceOptions(depends_on=list(needs))
    return pulumi.ComponentResource(type_, name, inputs, options)


def test_a_fault_of_one_resource_is_refused(project: Path) -> None:
    def program() -> None:
        declare(LOGS, "endless", {"kmsKeyId": "k"})

    with pytest.raises(OperationFailed, match="endless keeps logs for ever: set retentionInDays"):
        preview(program)


def test_a_fault_between_resources_is_refused(project: Path) -> None:
    def program() -> None:
        own = declare(GROUP, "groups-efa", {})
        rule = {"securityGroupId": "sg", "referencedSecurityGroupId": "sg", "ipProtocol": "-1"}
        declare(RULE % ("Ingress", "Ingress"), "in", rule, own)

    with pytest.raises(OperationFailed, match="groups-efa has no egress of all protocols"):
        preview(program, "up")
    state = Engine("region").pulumi("stack", "export")
    assert "resources" not in json.loads(state)["deployment"], "something was made before the rule was asked"


def test_what_is_right_passes(project: Path) -> None:
    preview(lambda: (declare(LOGS, "right", {"kmsKeyId": "k", "retentionInDays": 7}), None)[1])


def test_the_engine_may_start_it() -> None:
    assert PACK.stat().st_mode & stat.S_IXUSR


def test_only_regions_are_judged() -> None:
    stacks = {file.name.split(".")[1]: packs(file) for file in (ROOT / "stacks").glob("Pulumi.*.yaml")}
    assert stacks["local"] == stacks["kubernetes"] == []
    assert stacks["prod-us-east-1"] == [str(PACK)]
    assert packs(ROOT / "stacks" / "nowhere.yaml") == []
