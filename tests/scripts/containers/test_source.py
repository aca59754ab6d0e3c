"""The tag of an image says which files it was built from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.containers import source
from scripts.faults import OperationFailed


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A commit with a file that goes into images and one that does not."""
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "one.py").write_text("1\n")
    (tmp_path / "docs.md").write_text("A page.\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.3"\n')
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "One"], check=True)
    return tmp_path


def test_a_clean_checkout_is_its_commit(checkout: Path) -> None:
    found = source.read(checkout)
    assert len(found.commit) == 40
    assert found.tag == f"1.2.3-{found.commit[:12]}"
    assert found.changed == ()


def test_what_is_in_no_image_changes_nothing(checkout: Path) -> None:
    before = source.read(checkout)
    (checkout / "docs.md").write_text("Another page.\n")
    assert source.read(checkout) == before


def test_a_change_is_in_the_tag(checkout: Path) -> None:
    clean = source.read(checkout)
    tags = {clean.tag}
    for content in ("2\n", "3\n"):
        (checkout / "services" / "one.py").write_text(content)
        found = source.read(checkout)
        assert found.tag.startswith(f"{clean.tag}-dirty-")
        assert found.commit.startswith(f"{clean.commit}-dirty-")
        assert found.changed == ("services/one.py",)
        tags.add(found.tag)
    (checkout / "services" / "new.py").write_text("")
    tags.add(source.read(checkout).tag)
    (checkout / "services" / "one.py").unlink()
    tags.add(source.read(checkout).tag)
    assert len(tags) == 5, "each state has a tag of its own"


def test_outside_of_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.3"\n')
    with pytest.raises(OperationFailed, match="which commit it is of"):
        source.read(tmp_path)
