"""What the cluster is made of: pins that go together, one builder at a time, and what is said where it can't be had."""

from __future__ import annotations

import importlib.metadata
import threading
import time
from pathlib import Path

import pytest

from scripts import go_module
from tests.toolchain.kubernetes import cluster, debian, programs


def test_the_provider_is_of_the_version_that_the_sdk_asks_for() -> None:
    assert importlib.metadata.version("pulumi-kubernetes") == programs.PROVIDER_VERSION


def test_all_of_kubernetes_is_of_one_release() -> None:
    text = (programs.NODE / "go.mod").read_text()
    release = go_module.pinned(programs.NODE, "k8s.io/kubernetes").removeprefix("1.")
    replaced = [line.split("=>")[1].split() for line in text.splitlines() if "=>" in line]
    assert len(replaced) > 20
    assert {version for _, version in replaced} == {f"v0.{release}"}


def test_a_fingerprint_follows_every_file(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "go.mod").write_text("module m")
    seen = {programs.fingerprint(tmp_path)}
    for name, text in (("go.mod", "module n"), ("program/main.go", "package main"), ("program/main.go", "package b")):
        (tmp_path / name).write_text(text)
        seen.add(programs.fingerprint(tmp_path))
    assert len(seen) == 4


def test_two_builders_build_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "result"
    builds: list[int] = []
    both = threading.Barrier(2)

    def build() -> None:
        builds.append(1)
        # The other one has said that it waits by then: both passed the first look before either built.
        deadline = time.monotonic() + 10
        while "waiting for it" not in capsys.readouterr().err and time.monotonic() < deadline:
            time.sleep(0.01)
        result.touch()

    def builder() -> None:
        both.wait(10)
        programs.once(tmp_path, result, build)

    threads = [threading.Thread(target=builder) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builds == [1]


def test_a_build_that_fails_leaves_the_next_one_free(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        programs.once(tmp_path, tmp_path / "result", fail)
    programs.once(tmp_path, tmp_path / "result", (tmp_path / "result").touch)
    assert (tmp_path / "result").exists()


def test_only_root_may_have_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(debian.Unavailable, match="needs root"):
        cluster.make_ready(tmp_path)


def test_packages_that_cannot_be_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"sh": "dash", "no-such-program": "no-such-package", "/no/such/file": "another"}
    assert debian.missing(wanted) == ["another", "no-such-package"]
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(debian.Unavailable, match="another no-such-package"):
        debian.require(wanted)
    debian.require({"sh": "dash"})
