"""One stack for all tests of a session; each leaves it ready and at rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack, wait_until


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The default local stack, up."""
    stack = Stack(tmp_path_factory.mktemp("project"))
    stack.up()
    yield stack
    stack.down()


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    """The running stack, checked to be at rest before and after."""
    running.wait_ready()
    wait_until("at rest before the test", running.at_rest)
    yield running
    running.close_clients()
    running.wait_ready()
    wait_until("at rest after the test", running.at_rest)
