"""Repositories, caches and replication, as they would be made."""

from __future__ import annotations

import json

import pytest

from infra.aws.permissions.statement import Place
from infra.aws.registry import Registry, RegistryArgs, lifecycle
from infra.config import StackConfig
from tests.infra.aws.recorder import ACCOUNT, REGION, Graph, record
from tests.infra.aws.terraform import Provider

PLACE = Place("aws", REGION, ACCOUNT)
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k"


def declared(provider: Provider, **registry: object) -> Graph:
    config = StackConfig.parse({"target": "local", "registry": registry}).registry
    args = RegistryArgs(config, PLACE, "diphase/test", KEY, protect=True)
    return record(provider, lambda: Registry("registry", args))


@pytest.mark.parametrize(
    "registry", [{}, {"replicateTo": ["eu-west-1", "ap-northeast-1"]}, {"accountSettings": False}, {"pullThrough": []}]
)
def test_the_provider_takes_it(provider: Provider, registry: dict[str, object]) -> None:
    assert list(declared(provider, **registry).faults(provider)) == []


def test_a_tag_never_moves_and_what_is_pushed_is_scanned(provider: Provider) -> None:
    graph = declared(provider)
    repositories = graph.of("Repository")
    assert {one.inputs["name"] for one in repositories} == {
        f"diphase/test/{image}" for image in ("gateway", "scheduler", "worker", "kv")
    }
    for one in repositories:
        assert one.inputs["imageTagMutability"] == "IMMUTABLE"
        assert one.inputs["imageScanningConfiguration"] == {"scanOnPush": True}
        assert one.inputs["encryptionConfigurations"] == [{"encryptionType": "KMS", "kmsKey": KEY}]
        assert one.protect
    assert len(graph.of("LifecyclePolicy")) == len(repositories)


def test_images_are_copied_to_the_regions_that_are_listed_and_only_ours(provider: Provider) -> None:
    graph = declared(provider, replicateTo=["eu-west-1"])
    rule = graph.one("ReplicationConfiguration").inputs["replicationConfiguration"]["rules"][0]
    assert rule["destinations"] == [{"region": "eu-west-1", "registryId": ACCOUNT}]
    assert rule["repositoryFilters"] == [{"filter": "diphase/test/", "filterType": "PREFIX_MATCH"}]


def test_what_a_region_has_once_is_set_by_one_stack_only(provider: Provider) -> None:
    graph = declared(provider, accountSettings=False)
    assert {one.type.rpartition(":")[2] for one in graph.resources} == {"Registry", "Repository", "LifecyclePolicy"}


def test_a_cache_is_made_by_its_template(provider: Provider) -> None:
    graph = declared(provider)
    rules = {one.inputs["ecrRepositoryPrefix"]: one for one in graph.of("PullThroughCacheRule")}
    assert {p: one.inputs["upstreamRegistryUrl"] for p, one in rules.items()} == {
        "cache/ecr": "public.ecr.aws",
        "cache/kubernetes": "registry.k8s.io",
        "cache/quay": "quay.io",
    }
    for template in graph.of("RepositoryCreationTemplate"):
        assert template.urn in rules[template.inputs["prefix"]].dependencies


def test_images_end_by_age_without_a_tag_and_by_number_with_one() -> None:
    by_age, by_number = json.loads(lifecycle(50, 14))["rules"]
    assert by_age["selection"] == {
        "tagStatus": "untagged",
        "countType": "sinceImagePushed",
        "countUnit": "days",
        "countNumber": 14,
    }
    assert by_number["selection"]["countNumber"] == 50
    assert by_age["rulePriority"] < by_number["rulePriority"]
    assert len(json.loads(lifecycle(None, 14))["rules"]) == 1
