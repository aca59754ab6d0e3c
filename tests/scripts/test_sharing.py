"""How the tests are shared out: what shares a stack stays in one process, in order, and what takes longest begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.sharing import TOGETHER, piece_of

ROOT = Path(__file__).parents[2]
CASES = """\
import os

def test_one(testrun_uid): said("one")
def test_two(testrun_uid): said("two")

def said(name):
    with open({log!r}, "a") as log:
        print(os.environ["PYTEST_XDIST_WORKER"], {file!r}, name, file=log)
"""


def test_pieces() -> None:
    assert piece_of("tests/e2e/test_life.py::test_up") == piece_of("tests/e2e/test_faults.py::test_kill[kv]")
    assert piece_of("tests/infra/test_a.py::test_b") == "tests/infra/test_a.py" != piece_of("tests/infra/test_c.py::d")


def test_what_is_named_here_is_there() -> None:
    assert [place for place in TOGETHER if not (ROOT / place).exists()] == []


def test_a_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    files = ["tests/a/test_a.py", "tests/a/test_b.py", "tests/e2e/test_c.py", "tests/e2e/test_d.py"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(CASES.format(log=str(log), file=file))
    command = [sys.executable, "-m", "pytest", "-p", "tests.sharing", "-n", "2", "--rootdir", ".", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--import-mode=importlib", "tests"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line.split() for line in log.read_text().splitlines()]
    assert len(ran) == 8
    for pieces in (files[:1], files[1:2], files[2:]):
        mine = [line for line in ran if line[1] in pieces]
        assert len({worker for worker, _, _ in mine}) == 1, "one process"
        assert [(file, name) for _, file, name in mine] == [(file, name) for file in pieces for name in ("one", "two")]
    first_of_each = {worker: file for worker, file, _ in reversed(ran)}
    assert files[2] in first_of_each.values(), "the longest piece begins"
