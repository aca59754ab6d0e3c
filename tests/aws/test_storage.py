"""What a region keeps, made on moto by the real engine: nothing changes by itself, and nothing is left."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scripts.faults import OperationFailed
from tests.aws import programs
from tests.aws.operations import Operations
from tests.toolchain.aws.moto import Moto

ACCOUNT, REGION = "111122223333", "eu-west-1"


def config() -> dict[str, object]:
    return {
        "target": "local",
        "region": {"name": REGION, "account": ACCOUNT, "environment": "test"},
        "storage": {"protect": False, "valkey": {"replicas": 1}},
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, attached: Mapping[str, str]) -> Operations:
    return Operations(tmp_path_factory.mktemp("project"), "kept", programs.what_is_kept, attached, config())


def buckets(cloud: Moto) -> set[str]:
    client = cloud.client("s3", REGION, ACCOUNT)
    try:
        return {one["Name"] for one in client.list_buckets()["Buckets"]}
    finally:
        client.close()


def test_what_is_wrong_is_refused_in_the_providers_words_before_anything_is_made(stack: Operations) -> None:
    stack.config["storage"] = {"valkey": {"nodeType": "cache.none.large", "maintenance": "xyz:04:00-xyz:05:00"}}
    with pytest.raises(OperationFailed, match="maintenance_window"):
        stack.run("preview")
    stack.config = config()


def test_it_is_made_and_a_second_preview_and_a_refresh_find_nothing_to_do(stack: Operations, cloud: Moto) -> None:
    made = stack.run("up")
    assert set(made) == {"create"}
    assert buckets(cloud) == {f"diphase-kept-{ACCOUNT}-{what}" for what in ("weights", "kv", "backups", "access-logs")}
    assert set(stack.run("preview", refresh=True)) == {"same"}
    assert set(stack.run("refresh")) == {"same"}


def test_every_resource_carries_the_stacks_tags(stack: Operations) -> None:
    tagged = [one["outputs"]["tagsAll"] for one in stack.resources().values() if "tagsAll" in one.get("outputs", {})]
    assert len(tagged) > 5
    assert all(tags["diphase:stack"] == "kept" for tags in tagged)


def test_a_changed_setting_changes_what_it_is_about_and_nothing_else(stack: Operations) -> None:
    stack.config["storage"]["kmsDeletionDays"] = 14
    changes = stack.run("up")
    assert changes["update"] == 1
    assert set(changes) == {"update", "same"}


def test_nothing_is_left_of_it(stack: Operations, cloud: Moto) -> None:
    assert set(stack.run("destroy")) == {"delete"}
    assert buckets(cloud) == set()
