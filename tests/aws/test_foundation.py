"""What every region of stacks/ stands on is planned as AWS would take it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.aws import programs
from tests.aws.operations import Operations
from tests.infra.aws.test_stack_files import FILES, REGIONS

PREFIX = "diphase:"


def operations(folder: Path, name: str, environ: Mapping[str, str]) -> Operations:
    """A stack with the configuration of a file of stacks/."""
    said = yaml.safe_load(FILES[name].read_text())["config"]
    config = {key.removeprefix(PREFIX): value for key, value in said.items()}
    return Operations(folder, name, programs.foundation, environ, config)


@pytest.mark.parametrize("name", REGIONS)
def test_its_preview_is_taken_by_the_provider(tmp_path: Path, attached: Mapping[str, str], name: str) -> None:
    stack = operations(tmp_path, name, attached)
    planned = stack.run("preview")
    assert set(planned) == {"create"}
    assert planned["create"] > 100
