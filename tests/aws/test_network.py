"""A region's network, made on moto by the real engine: nothing changes by itself, and all of it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.aws import programs
from tests.aws.operations import Operations
from tests.toolchain.aws.moto import Moto

ACCOUNT, REGION = "111122223333", "eu-central-1"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, attached: Mapping[str, str]) -> Operations:
    config: dict[str, Any] = {
        "target": "local",
        "region": {"name": REGION, "account": ACCOUNT, "environment": "test"},
        "network": {"zones": [f"{REGION}a", f"{REGION}b"], "nat": "zone"},
    }
    return Operations(tmp_path_factory.mktemp("project"), "network", programs.network, attached, config)


def own(cloud: Moto) -> list[str]:
    """Blocks of the VPCs that are not the account's default."""
    client = cloud.client("ec2", REGION, ACCOUNT)
    try:
        return [one["CidrBlock"] for one in client.describe_vpcs()["Vpcs"] if not one["IsDefault"]]
    finally:
        client.close()


def test_it_is_made_and_a_second_preview_finds_nothing_to_do(stack: Operations, cloud: Moto) -> None:
    assert set(stack.run("up")) == {"create"}
    assert own(cloud) == ["10.0.0.0/16"]
    assert set(stack.run("preview")) == {"same"}


def test_all_of_it_goes(stack: Operations, cloud: Moto) -> None:
    assert set(stack.run("destroy")) == {"delete"}
    assert own(cloud) == []
