"""Where a stack's state lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.state.address import Bucket, backend
from tests.infra.project import ROOT

REGION = "s3://diphase-state-111122223333-us-east-1?region=us-east-1&awssdk=v2"


@pytest.mark.parametrize(
    ("stack", "url"),
    [
        ("local", None),
        ("kubernetes", None),
        ("dev-us-east-1", REGION),
        ("prod-us-east-1", REGION),
        ("prod-eu-west-1", REGION.replace("us-east-1", "eu-west-1")),
    ],
)
def test_a_regions_state_lies_in_the_bucket_of_its_account(stack: str, url: str | None) -> None:
    assert backend(ROOT / "stacks" / f"Pulumi.{stack}.yaml", {}) == url


def test_the_environment_is_heard_first() -> None:
    file = ROOT / "stacks" / "Pulumi.prod-us-east-1.yaml"
    assert backend(file, {"PULUMI_BACKEND_URL": "s3://mine"}) == "s3://mine"


@pytest.mark.parametrize(
    "text", ["", "config: 3", "- a", "config: {'diphase:target': aws, 'diphase:region': x}", ": :"]
)
def test_a_file_that_says_nothing_has_no_bucket(tmp_path: Path, text: str) -> None:
    (tmp_path / "stack.yaml").write_text(text)
    assert backend(tmp_path / "stack.yaml", {}) is None
    assert backend(tmp_path / "none.yaml", {}) is None


def test_a_region_whose_secrets_have_a_passphrase_is_kept_in_the_checkout(tmp_path: Path) -> None:
    lines = (ROOT / "stacks" / "Pulumi.dev-us-east-1.yaml").read_text().splitlines()
    (tmp_path / "stack.yaml").write_text("\n".join(line for line in lines if not line.startswith("secretsprovider")))
    assert backend(tmp_path / "stack.yaml", {}) is None


def test_urls_of_buckets() -> None:
    assert Bucket.of(REGION) == Bucket("diphase-state-111122223333-us-east-1", "", "us-east-1")
    assert Bucket.of("s3://b/team/a/?endpoint=localhost:9000") == Bucket("b", "team/a/", None, "https://localhost:9000")
    assert Bucket.of("file:///state") is None
    assert Bucket.of("gs://b") is None
