"""The set-up: what it says where something is missing, and that it does nothing where all is there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from infra.paths import cache_dir
from scripts import bootstrap, go_module, pulumi_cli, steps

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(sys.prefix)


def program(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_call_that_finds_all_in_place_says_and_changes_nothing() -> None:
    link = VENV / pulumi_cli.ROOT / "bin"
    before = (link.lstat().st_mtime_ns, (VENV / "diphase-stamp").stat().st_mtime_ns)
    command = [f"{sys.base_prefix}/bin/python3", "-m", "scripts.bootstrap"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert before == (link.lstat().st_mtime_ns, (VENV / "diphase-stamp").stat().st_mtime_ns)


def test_an_old_python_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    with pytest.raises(steps.SetUpError, match=r"3\.11 or newer is needed[\s\S]*apt install python3\.11"):
        bootstrap.require_python()


@pytest.mark.parametrize(
    "name",
    ["scripts/bootstrap.py", "scripts/steps.py", "scripts/pulumi_cli.py", "scripts/go_module.py", "infra/paths.py"],
)
def test_an_old_python_can_read_what_refuses_it(name: str) -> None:
    compile((ROOT / name).read_text(), name, "exec", dont_inherit=True, _feature_version=8)


def test_a_fingerprint_follows_every_part(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("a==1")
    first = bootstrap.fingerprint(lock, "3.11")
    assert first == bootstrap.fingerprint(lock, "3.11")
    assert first != bootstrap.fingerprint(lock, "3.12")
    lock.write_text("a==2")
    assert first != bootstrap.fingerprint(lock, "3.11")


def test_a_program_that_fails_is_named_with_what_it_said() -> None:
    with pytest.raises(steps.SetUpError, match=r"status 3:\n  about to fail"):
        steps.run(["sh", "-c", "echo about to fail >&2; exit 3"])


def test_without_release_and_go_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(steps.SetUpError, match=r"there is none on PATH.*Install the Pulumi CLI .* or Go"):
        pulumi_cli.from_module(tmp_path / "home", tmp_path)


@pytest.mark.parametrize(
    ("says", "companion", "taken"),
    [
        ("echo v99.0.0", True, False),
        ("echo v3.1.0", True, False),
        ("echo v3.999.0", False, False),
        ("exit 1", True, False),
        ("echo v3.999.0", True, True),
    ],
)
def test_a_cli_on_path_is_taken_only_if_it_is_new_enough_and_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, companion: bool, taken: bool
) -> None:
    found = program(tmp_path / "bin" / "pulumi", says)
    if companion:
        program(tmp_path / "bin" / "pulumi-resource-pulumi-python", "")
    monkeypatch.setenv("PATH", f"{found.parent}{os.pathsep}{os.environ['PATH']}")
    assert pulumi_cli.from_path() == (found.parent if taken else None)


def test_the_cli_that_was_chosen_is_linked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = program(tmp_path / "bin" / "pulumi", "echo v3.999.0")
    program(tmp_path / "bin" / "pulumi-resource-pulumi-python", "")
    monkeypatch.setenv("PATH", f"{found.parent}{os.pathsep}{os.environ['PATH']}")
    venv = tmp_path / "venv"
    venv.mkdir()
    link = pulumi_cli.ensure(venv, tmp_path / "cache")
    assert link.resolve() == found.parent
    assert pulumi_cli.ensure(venv, tmp_path / "cache") == link
    assert not (tmp_path / "cache").exists()


def test_the_environments_cli_is_complete_and_of_a_version_that_the_sdk_takes() -> None:
    folder = VENV / pulumi_cli.ROOT / "bin"
    assert pulumi_cli.complete(folder)
    version = pulumi_cli.version_of(folder / "pulumi")
    assert version is not None
    assert version >= pulumi_cli.MINIMUM


def test_go_keeps_the_caches_that_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOMODCACHE", "GOCACHE"):
        monkeypatch.delenv(name, raising=False)
    cache = cache_dir(os.environ)
    assert go_module.environ(cache)["GOCACHE"] == str(cache / "go" / "build")
    monkeypatch.setenv("GOCACHE", "/elsewhere")
    assert go_module.environ(cache)["GOCACHE"] == "/elsewhere"


def test_the_pinned_module_is_whole() -> None:
    """go.mod and go.sum belong together: `go` finds every module of the CLI in them."""
    if shutil.which("go") is None:
        pytest.skip("needs go, which only a machine without a released CLI has")
    command = ["go", "list", "-m", "-f", "{{.Version}}", "github.com/pulumi/pulumi/pkg/v3"]
    environ = go_module.environ(cache_dir(os.environ))
    done = subprocess.run(
        command, cwd=pulumi_cli.MODULE, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == f"v{pulumi_cli.pinned()}", done.stderr
