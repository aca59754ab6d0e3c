"""`diphase capacity` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scripts.capacity import command
from tests.infra.capacity import models

ASKED = ["--prompt-tokens", "1500", "--answer-tokens", "200", "--requests-per-second", "20"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(models.LLAMA_3_70B))
    return tmp_path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_pairs_are_shown_with_their_price_and_reasons(config: Path) -> None:
    done = call(config, *ASKED, "--shown", 2, "--why")
    assert done.exit_code == 0, done.output
    assert "70.55 G parameters" in done.output
    assert "KV 327.7 kB a token" in done.output
    assert "docs/capacity.md" in done.output
    assert "weights need 141 GB" in done.output


def test_machines_read_the_same(config: Path) -> None:
    done = call(config / "config.json", *ASKED, "--json", "--shown", 3, "--type", "p5.48xlarge=30")
    (plan,) = json.loads(done.output)["plans"]
    assert plan["prefill"]["instanceType"] == plan["decode"]["instanceType"] == "p5.48xlarge"
    assert plan["usdPerHour"] == 30 * (plan["prefill"]["instances"] + plan["decode"]["instances"])
    assert plan["ttftSeconds"] <= 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--type", "p9.large"], "'p9.large' is not in the table"),
        (["--type", "p5.48xlarge=cheap"], "p5.48xlarge=cheap: could not convert"),
        (["--type", "p5.48xlarge=-1"], "a price is above 0"),
        (["--type", "g5.12xlarge"], "no instance type can prefill this"),
        (["--dtype", "int2"], "'int2' is not one of"),
        (["--ttft", "0"], "0.0 is not in the range x>0"),
    ],
)
def test_what_is_wrong_is_said(config: Path, arguments: list[str], says: str) -> None:
    done = call(config, *ASKED, *arguments)
    assert done.exit_code != 0
    assert says in done.output


def test_a_file_that_is_no_config_is_said(tmp_path: Path) -> None:
    assert "config.json is no model's config.json" in call(tmp_path, *ASKED).output
    (tmp_path / "config.json").write_text("[]")
    assert "it is no object" in call(tmp_path, *ASKED).output
    (tmp_path / "config.json").write_text("{}")
    assert "no positive num_attention_heads" in call(tmp_path, *ASKED).output
