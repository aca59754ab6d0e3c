"""A pytest plugin: every skip is shown with its reason, and one whose reason nobody has allowed fails the run.

`make test` loads it with `-p tests.skips`. The allowed reasons are in allowed_skips.txt, one a line.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.txt")
MARK = "Skipped: "


class Skips:
    """Counts the reasons of a run."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self._allowed = allowed
        self._reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[report.longrepr[2].removeprefix(MARK)] += 1

    @property
    def forbidden(self) -> list[str]:
        return sorted(set(self._reasons) - self._allowed)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.forbidden and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, number in sorted(self._reasons.items()):
            verdict = "allowed" if reason in self._allowed else f"NOT allowed: run it, or add it to {ALLOWED.name}"
            terminalreporter.write_line(f"skipped {number}: {reason} ({verdict})")


def read_allowed(path: Path) -> frozenset[str]:
    """The reasons in a file; empty lines and those that begin with # are for people."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skips(read_allowed(ALLOWED)), "skips")
