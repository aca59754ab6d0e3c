"""One real cluster for all tests of a run, and a namespace for each test that wants one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra.paths import cache_dir
from tests.toolchain.kubernetes import debian
from tests.toolchain.kubernetes.cluster import Cluster

HERE = Path(__file__).parent
RUNNING = pytest.StashKey[tuple[Cluster, ExitStack]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("kubernetes")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of one node, with DNS and enforced NetworkPolicies; what it is made of is built once."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(Cluster.running(cache_dir(os.environ)))
        except debian.Unavailable as error:
            pytest.skip(str(error))
        request.config.stash[RUNNING] = (cluster, stack)
        cluster.load_image(cluster.toolchain.image("agnhost"))
        yield cluster


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The run goes on with tests elsewhere, which may have the memory and the cores."""
    if RUNNING in item.config.stash and (nextitem is None or not nextitem.path.is_relative_to(HERE)):
        item.config.stash[RUNNING][1].close()
        del item.config.stash[RUNNING]


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace under Pod Security `restricted`, deleted afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and RUNNING in item.config.stash:
        report.sections.append(("cluster", item.config.stash[RUNNING][0].diagnosis()))
    return report
