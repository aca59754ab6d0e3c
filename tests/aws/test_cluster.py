"""The cluster of a region on moto: what is wrong is refused, what is right is kept as it was said."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scripts.faults import OperationFailed
from tests.aws import programs
from tests.aws.operations import Operations


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, attached: Mapping[str, str]) -> Operations:
    config = {"target": "local", "model": {"name": "commandd"}}
    return Operations(tmp_path_factory.mktemp("project"), "objects", programs.objects, attached, config)


def test_a_field_that_kubernetes_does_not_know_is_refused_by_name(stack: Operations) -> None:
    with pytest.raises(OperationFailed, match="commandd"):
        stack.run("preview")


def test_objects_change_by_what_is_said_and_go(stack: Operations) -> None:
    stack.config["model"] = {"name": "command"}
    made = stack.run("up")
    assert set(made) == {"create"}
    assert set(stack.run("preview", refresh=True)) == {"same"}
    stack.config["model"] = {"name": "args"}
    assert stack.run("up")["update"] == 1
    assert stack.run("destroy") == {"delete": made["create"]}
