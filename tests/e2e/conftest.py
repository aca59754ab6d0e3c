"""One stack for all tests of a session; each leaves it ready and at rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, wait_until

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests here, those that never use the shared stack come first, while it takes no memory; what runs over TCP
    comes last: that changes the stack, and each change restarts workers.
    """
    places = [place for place, item in enumerate(items) if item.path.parent == HERE]
    ours = sorted(
        (items[place] for place in places), key=lambda item: ("running" in item.fixturenames, "[tcp" in item.name)
    )
    for place, item in zip(places, ours, strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The default local stack, up."""
    stack = Stack(tmp_path_factory.mktemp("project"))
    try:
        stack.up()
        yield stack
    finally:
        stack.end()


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    """The running stack, checked to be at rest before and after."""
    running.wait_ready()
    wait_until("at rest before the test", running.at_rest)
    yield running
    running.close_clients()
    running.wait_ready()
    wait_until("at rest after the test", running.at_rest)
