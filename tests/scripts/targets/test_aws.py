"""The aws target as the subcommands see it: before there is a cluster, and before it serves."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.config import NAMESPACE
from infra.paths import cluster_file
from scripts import targets
from scripts.faults import OperationFailed
from scripts.targets.aws import AwsTarget
from scripts.targets.client import gateway_of
from scripts.up import _told
from tests.infra.aws.region import RIGHT, changed

REGION = {"region": {"name": "us-east-1", "account": "123456789012", "cluster": "diphase-a", "registry": "x/diphase/a"}}


def target(project: Path, **changes: object) -> targets.Target:
    file = project / "Pulumi.a.yaml"
    values = {f"{NAMESPACE}:{group}": value for group, value in changed(changes, RIGHT).items()}
    file.write_text(yaml.safe_dump({"config": values}))
    return targets.of("a", project, project, file)


def test_the_stacks_file_names_it(tmp_path: Path) -> None:
    assert isinstance(target(tmp_path), AwsTarget)


def test_who_has_not_deployed_from_here_is_told_to(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="run `diphase up --stack a`, which writes it"):
        target(tmp_path).roles({"gateway": {}})


def test_a_region_alone_has_no_roles_and_says_what_comes_next(tmp_path: Path) -> None:
    assert target(tmp_path).roles(REGION) == []
    with pytest.raises(OperationFailed, match=r"region us-east-1 stands, but .* `diphase images push --stack a`"):
        gateway_of("a", REGION)
    assert _told("a", REGION) == {
        "region": "us-east-1 of account 123456789012, cluster diphase-a",
        "registry": "x/diphase/a",
        "next": "diphase images push --stack a",
    }


def test_a_fault_before_there_was_a_cluster_says_everything_itself(tmp_path: Path) -> None:
    assert target(tmp_path).explain() == ""


def test_a_region_that_is_taken_down_leaves_no_way_to_its_cluster_behind(tmp_path: Path) -> None:
    made = target(tmp_path)
    made.keep({"files": {str(cluster_file("a")): "{}"}})
    file = tmp_path / cluster_file("a")
    assert file.read_text() == "{}"
    assert file.stat().st_mode & 0o077 == 0
    made.clean()
    assert not file.exists()
