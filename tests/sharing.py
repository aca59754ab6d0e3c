"""A pytest plugin: how the tests are shared out among the processes of pytest-xdist.

`make test` loads it with `-p tests.sharing`. The tests of a file stay together, in their order, for they share
fixtures; all of those that share a stack are one piece. Pieces that take long are begun first.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import NodeManager

# Folders and files, each run by one process; those of a folder share a stack. They take longest, so they begin.
TOGETHER = (
    "tests/e2e/",
    "tests/kubernetes/",
    "tests/services/worker/test_completions.py",
    "tests/infra/local/test_life.py",
    "tests/services/gateway/test_life.py",
)
# After ^C each process takes its stack down, which lasts longer than xdist waits by itself.
END_SECONDS = 90


class Pieces(LoadScopeScheduling):
    """One piece for each of TOGETHER, and for each file besides."""

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)


def piece_of(nodeid: str) -> str:
    """The piece that a test belongs to."""
    return next((piece for piece in TOGETHER if nodeid.startswith(piece)), nodeid.partition("::")[0])


def _rank(item: pytest.Item) -> int:
    piece = piece_of(item.nodeid)
    return TOGETHER.index(piece) if piece in TOGETHER else len(TOGETHER)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Pieces:
    config.option.loadscopereorder = False  # ours is better than by number of tests
    NodeManager.EXIT_TIMEOUT = END_SECONDS
    return Pieces(config, log)
