"""A skip that nobody allowed fails the run; one that is allowed is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = """\
import pytest

@pytest.mark.skip(reason={reason!r})
def test_one():
    pass

def test_other():
    pass
"""
WHOLE = """import pytest

pytest.skip({reason!r}, allow_module_level=True)
"""


@pytest.mark.parametrize(("reason", "status"), [("reads /proc", 0), ("too hard today", 1)])
@pytest.mark.parametrize("cases", [CASES, WHOLE], ids=["test", "file"])
@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["alone", "shared out"])
def test_only_allowed_reasons_pass(tmp_path: Path, processes: list[str], cases: str, reason: str, status: int) -> None:
    (tmp_path / "test_case.py").write_text(cases.format(reason=reason))
    (tmp_path / "test_more.py").write_text("def test_more():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", "--rootdir", str(tmp_path), "-c", "/dev/null"]
    done = subprocess.run(
        [*command, *processes, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert f"skipped 1: {reason}" in done.stdout
