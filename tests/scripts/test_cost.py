"""`diphase cost` as a person calls it, and the page that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts import cost
from scripts.faults import OperationFailed


def test_the_page_is_current() -> None:
    assert cost.PAGE.read_text(encoding="utf-8") == cost.page(), "write it again with `python -m scripts.cost`"


def test_a_person_reads_lines_a_sum_and_what_is_not_counted() -> None:
    done = CliRunner().invoke(cost.command, ["--stack", "prod-us-east-1"])
    assert done.exit_code == 0, done.output
    assert "p5en.48xlarge, reserved" in done.output
    assert "together" in done.output
    assert "data transfer" in done.output


def test_machines_read_the_same() -> None:
    done = CliRunner().invoke(cost.command, ["--stack", "dev-us-east-1", "--json"])
    found = json.loads(done.output)
    assert found["usdPerMonth"] == pytest.approx(sum(line["usdPerMonth"] for line in found["lines"]))
    assert found["mostUsdPerMonth"] > found["usdPerMonth"]


def test_a_budget_that_the_region_may_exceed_is_told(tmp_path: Path) -> None:
    text = (cost.ROOT / "stacks" / "Pulumi.dev-us-east-1.yaml").read_text().replace("usd: 6000", "usd: 60")
    file = tmp_path / "stack.yaml"
    file.write_text(text)
    done = CliRunner().invoke(cost.command, ["--config-file", str(file)])
    assert "monitoring.budget.usd is 60" in done.output


@pytest.mark.parametrize("stack", ["local", "kubernetes"])
def test_other_targets_are_not_aws(stack: str) -> None:
    done = CliRunner().invoke(cost.command, ["--stack", stack])
    assert done.exit_code == 1
    assert "target" in done.output


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=r"no stack file .*nowhere\.yaml"):
        cost.read(tmp_path / "nowhere.yaml")
