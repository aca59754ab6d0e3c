"""The policy pack under the real engine, with what AWS's resources are at a preview: ids and tokens not known yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.faults import OperationFailed
from scripts.policies import PACK
from tests.aws import programs
from tests.aws.operations import Operations


def kept(folder: Path, attached: Mapping[str, str], *, protect: bool) -> Operations:
    """What a region of production keeps."""
    region = {"name": "eu-west-1", "account": "111122223333", "environment": "prod"}
    config = {"target": "local", "region": region, "storage": {"protect": protect}}
    return Operations(folder, "judged", programs.what_is_kept, attached, config)


def test_what_a_region_keeps_passes_every_rule(tmp_path: Path, attached: Mapping[str, str]) -> None:
    assert set(kept(tmp_path, attached, protect=True).run("preview", policy_packs=[str(PACK)])) == {"create"}


def test_production_must_protect_its_stores(tmp_path: Path, attached: Mapping[str, str]) -> None:
    with pytest.raises(OperationFailed, match="region-weights is not protected, and data are lost with it") as refused:
        kept(tmp_path, attached, protect=False).run("preview", policy_packs=[str(PACK)])
    assert "region-valkey is not protected" in str(refused.value)
