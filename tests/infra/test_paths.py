"""Where things lie, and what is said where they cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.paths import SOCKET_PATH_BYTES, PathError, StackPaths, cache_dir, project_dir


def test_the_cache_follows_the_environment() -> None:
    assert cache_dir({"DIPHASE_CACHE": "/c", "XDG_CACHE_HOME": "/x"}) == Path("/c")
    assert cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/diphase")
    assert cache_dir({}) == Path.home() / ".cache" / "diphase"


def test_the_project_is_the_nearest_folder_above_with_pulumi_yaml(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").touch()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_dir({}, inner) == tmp_path
    assert project_dir({"DIPHASE_PROJECT": str(tmp_path)}, Path("/")) == tmp_path
    with pytest.raises(PathError, match=r"no Pulumi\.yaml in"):
        project_dir({}, Path("/"))
    with pytest.raises(PathError, match="DIPHASE_PROJECT"):
        project_dir({"DIPHASE_PROJECT": str(inner)}, tmp_path)


def test_two_projects_and_two_stacks_never_share_a_run_folder() -> None:
    runs = {StackPaths.of(Path(p), s, Path("/c")).run for p in ("/a", "/b") for s in ("local", "other")}
    assert len(runs) == 4


def test_a_socket_that_the_kernel_would_refuse_is_refused_first() -> None:
    fits = Path("/" + "x" * 40)
    paths = StackPaths.of(Path("/p"), "local", fits)
    assert len(os.fsencode(paths.socket("decode-worker-000"))) <= SOCKET_PATH_BYTES
    with pytest.raises(PathError, match="DIPHASE_CACHE"):
        StackPaths.of(Path("/p"), "local", Path("/" + "x" * 80))
