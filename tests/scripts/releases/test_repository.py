"""What git says of a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.releases.repository import GitError, Repository
from tests.scripts.releases.gits import commit, git, repository


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return repository(tmp_path / "one")


def test_what_is_checked_out(folder: Path) -> None:
    first = commit(folder, "The first\n\nIts body", a_py="1")
    second = commit(folder, "The second", b_py="2")
    git(folder, "tag", "v1", first)
    found = Repository(folder)
    assert found.head() == second
    assert found.title(first) == "The first"
    assert found.commit_of("v1") == found.commit_of(first[:9]) == first
    assert found.commit_of("no-such-thing") is None
    assert found.commit_of("--all") is None
    assert found.has(first)
    assert not found.has("f" * 40)
    assert not found.shallow()
    assert found.file_at(first, "a.py") == "1"
    assert found.file_at(first, "b.py") is None


def test_dirty_names_what_differs_also_what_git_does_not_know(folder: Path) -> None:
    commit(folder, "one", a_py="1", b_py="1")
    (folder / ".gitignore").write_text("ignored\n")
    commit(folder, "two")
    assert Repository(folder).dirty() == ()
    (folder / "a.py").write_text("2")
    (folder / "b.py").unlink()
    (folder / "new file é").write_text("3")
    (folder / "ignored").write_text("4")
    assert set(Repository(folder).dirty()) == {"a.py", "b.py", "new file é"}


def test_a_project_in_a_folder_of_its_repository(folder: Path) -> None:
    first = commit(folder, "one", project__a_py="1", other__b_py="1")
    found = Repository(folder / "project")
    assert found.prefix() == "project/"
    assert found.file_at(first, "a.py") == "1"
    (folder / "other" / "b.py").write_text("2")
    assert found.dirty() == ()


def test_a_shallow_clone_says_so(folder: Path, tmp_path: Path) -> None:
    first = commit(folder, "one", a_py="1")
    commit(folder, "two", a_py="2")
    git(folder, "clone", "--quiet", "--depth=1", f"file://{folder}", str(tmp_path / "shallow"))
    found = Repository(tmp_path / "shallow")
    assert found.shallow()
    assert not found.has(first)


def test_a_hooks_environment_does_not_mislead_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = commit(folder, "one", a_py="1")
    other = repository(tmp_path / "other")
    commit(other, "another", b_py="1")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert Repository(folder).head() == here


def test_worktrees_run_no_hooks_and_go_with_all_that_is_in_them(folder: Path, tmp_path: Path) -> None:
    first = commit(folder, "one", a_py="1")
    commit(folder, "two", a_py="2")
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    there = tmp_path / "there"
    Repository(folder).add_worktree(there, first)
    assert (there / "a.py").read_text() == "1"
    assert not (tmp_path / "hooked").exists()
    (there / "more").write_text("x")
    Repository(folder).remove_worktree(there)
    assert not there.exists()
    assert git(folder, "worktree", "list").count("\n") == 0


def test_what_is_no_repository_is_said(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not a git repository"):
        Repository(tmp_path).head()


def test_without_git_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitError, match="git is not installed"):
        Repository(folder).head()
