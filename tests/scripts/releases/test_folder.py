"""Where releases run from: made whole, kept for as long as something needs them, and gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.paths import StackPaths
from scripts.faults import OperationFailed
from scripts.releases.folder import Releases
from tests.scripts.releases.gits import git
from tests.scripts.releases.stub import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture
def cache() -> Iterator[Path]:
    """Sockets have short paths, which the folders of tests are too long for."""
    with tempfile.TemporaryDirectory(prefix="d") as folder:
        yield Path(folder)


@pytest.fixture
def releases(project: Project, cache: Path) -> Releases:
    return Releases(project.folder, cache)


def test_a_release_is_the_commit_with_its_own_environment_and_goes_afterwards(
    project: Project, releases: Releases
) -> None:
    first = project.commit("one", which="1")
    project.commit("two", which="2")
    with releases.at(first) as release:
        assert (release.source / "which").read_text() == "1"
        assert Path(release.diphase).is_file()
        releases.prune()
        assert Path(release.diphase).is_file(), "it is being worked with"
    assert project.releases == []
    assert git(project.folder, "worktree", "list").count("\n") == 0
    assert git(project.folder, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["supervisord.conf", "programs/kv-0.json"])
def test_it_stays_while_used(project: Project, releases: Releases, cache: Path, name: str) -> None:
    first, second = project.commit("one"), project.commit("two")
    mention = StackPaths.of(project.folder, "any", cache).run / name
    with releases.at(first) as release:
        mention.parent.mkdir(parents=True)
        mention.write_text(f'{{"command": ["{release.source}/.venv/bin/python"]}}')
    with releases.at(second):
        pass
    assert [path.name for path in project.releases] == [first[:16]]
    mention.unlink()
    releases.prune()
    assert project.releases == []


def test_two_may_work_with_one(project: Project, releases: Releases, cache: Path) -> None:
    first = project.commit("one")
    with releases.at(first) as release:
        with Releases(project.folder, cache).at(first) as same:
            assert same == release
        assert Path(release.diphase).is_file()
    assert project.releases == []


def test_what_an_interrupted_one_left_is_made_whole(project: Project, releases: Releases) -> None:
    first = project.commit("one", which="1")
    project.commit("two", which="2")
    with pytest.raises(KeyboardInterrupt), releases.at(first):
        raise KeyboardInterrupt
    assert project.releases == []

    folder = project.folder / ".diphase" / "releases" / first[:16]
    git(project.folder, "worktree", "add", "--quiet", "--no-checkout", "--detach", str(folder), first)
    (folder / "stray.py").write_text("")
    with releases.at(first) as release:
        assert (release.source / "which").read_text() == "1"
        assert not (release.source / "stray.py").exists()

    folder.mkdir()
    (folder / "which").write_text("of no worktree")
    with releases.at(first) as release:
        assert (release.source / "which").read_text() == "1"


def test_a_project_below_the_root_of_its_repository(tmp_path: Path) -> None:
    whole = Project(tmp_path / "whole")
    nested = {
        f"part__{name}": text
        for name, text in {"scripts____init___py": "", "scripts__bootstrap_py": "", "which": "part"}.items()
    }
    first = whole.commit("one", **nested)
    with Releases(whole.folder / "part", tmp_path / "c").at(first) as release:
        assert (release.source / "which").read_text() == "part"


def test_an_environment_that_cannot_be_made_is_said_and_leaves_nothing(project: Project, releases: Releases) -> None:
    first = project.commit("one", broken="")
    with pytest.raises(OperationFailed, match=r"environment of commit .* cannot be set up"), releases.at(first):
        raise AssertionError("it was given out")
    assert project.releases == []


def test_without_releases_nothing_is_made(tmp_path: Path) -> None:
    Releases(tmp_path, tmp_path / "c").prune()
    assert list(tmp_path.iterdir()) == []
