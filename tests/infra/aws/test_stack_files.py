"""The stack files of regions that come with the project: right, and of one mind."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
import yaml

from infra.config import NAMESPACE, StackConfig
from infra.config.aws.network import overlapping

FOLDER = Path(__file__).parents[3] / "stacks"


def read(file: Path) -> StackConfig:
    values = yaml.safe_load(file.read_text())["config"]
    return StackConfig.parse({key.removeprefix(f"{NAMESPACE}:"): value for key, value in values.items()})


FILES = {file.name.split(".")[1]: file for file in sorted(FOLDER.glob("Pulumi.*.yaml"))}
REGIONS = {name: config for name, file in FILES.items() if (config := read(file)).target == "aws"}


def test_there_is_one_for_each_environment_and_region() -> None:
    assert set(REGIONS) == {
        "dev-us-east-1",
        "staging-us-east-1",
        "prod-us-east-1",
        "prod-eu-west-1",
        "prod-ap-northeast-1",
    }


@pytest.mark.parametrize("stack", REGIONS)
def test_its_name_says_what_it_is(stack: str) -> None:
    region = REGIONS[stack].region
    assert stack == f"{region.environment}-{region.name}"


@pytest.mark.parametrize("stack", REGIONS)
def test_secrets_are_encrypted_by_a_key_of_its_region(stack: str) -> None:
    provider = yaml.safe_load(FILES[stack].read_text())["secretsprovider"]
    assert provider == f"awskms://alias/diphase-state?region={REGIONS[stack].region.name}"


@pytest.mark.parametrize(("one", "other"), list(permutations(REGIONS, 2)))
def test_networks_lie_apart_and_know_of_each_other(one: str, other: str) -> None:
    assert not overlapping(REGIONS[one].network.cidr, REGIONS[other].network.cidr)
    assert REGIONS[other].network.cidr in REGIONS[one].network.peers


def test_production_has_its_images_in_each_of_its_regions() -> None:
    production = {config.region.name for config in REGIONS.values() if config.region.environment == "prod"}
    source = REGIONS["prod-us-east-1"]
    assert set(source.registry.replicate_to) == production - {source.region.name}


def test_one_stack_of_an_account_and_region_sets_what_the_region_has_once() -> None:
    setters = [(c.region.account, c.region.name) for c in REGIONS.values() if c.registry.account_settings]
    assert len(setters) == len(set(setters))
