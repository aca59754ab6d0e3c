"""Whether an update's commit can be gone back to in this clone, and what to do where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.faults import OperationFailed
from scripts.releases.plan import commit_of
from scripts.releases.record import Record
from scripts.releases.repository import Repository
from scripts.releases.updates import Update
from tests.scripts.releases.gits import commit, git, repository
from tests.scripts.releases.story import BEGIN


def of(commit: str | None) -> Update:
    return Update(5, "update", "succeeded", BEGIN, BEGIN, "", Record(commit), {}, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return repository(tmp_path / "one")


def test_a_commit_that_is_here(folder: Path) -> None:
    first = commit(folder, "one", scripts__releases__process_py="")
    commit(folder, "two", a_py="")
    assert commit_of(Repository(folder), of(first)) == first


def test_a_commit_that_is_not_here(folder: Path, tmp_path: Path) -> None:
    first = commit(folder, "one", scripts__releases__process_py="")
    commit(folder, "two", a_py="")
    with pytest.raises(OperationFailed, match=r"is not in this clone: `git fetch --all`"):
        commit_of(Repository(folder), of("f" * 40))
    git(folder, "clone", "--quiet", "--depth=1", f"file://{folder}", str(tmp_path / "shallow"))
    shallow = Repository(tmp_path / "shallow")
    with pytest.raises(OperationFailed, match=f"shallow clone: `git fetch --depth=1 origin {first}`"):
        commit_of(shallow, of(first))
    shallow.git("fetch", "--quiet", "--depth=1", "origin", first)
    assert commit_of(shallow, of(first)) == first


def test_a_commit_from_before_rollbacks(folder: Path) -> None:
    first = commit(folder, "one", a_py="")
    with pytest.raises(OperationFailed, match="is older than rollbacks"):
        commit_of(Repository(folder), of(first))


def test_an_update_without_a_commit(folder: Path) -> None:
    commit(folder, "one")
    with pytest.raises(OperationFailed, match="update 5 recorded no commit"):
        commit_of(Repository(folder), of(None))


def test_outside_of_git(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="no usable git checkout"):
        commit_of(Repository(tmp_path), of("f" * 40))
