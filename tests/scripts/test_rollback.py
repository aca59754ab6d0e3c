"""The `diphase rollback` command on a real history, with stand-ins for the releases that it runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from scripts.releases.record import Rollback, parse
from tests.infra.project import ROOT, eventually, write_stack
from tests.scripts.releases import bare
from tests.scripts.releases.stub import Project

KEY = {
    "op": "delete",
    "urn": "urn:pulumi:test::diphase::pulumi-python:dynamic/local:ApiKey::api-key",
    "type": "pulumi-python:dynamic/local:ApiKey",
}


class Story(Project):
    """Two updates of two commits that worked, with configurations of their own."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        super().__init__(folder)
        self.scratch = scratch
        shutil.copy(ROOT / "Pulumi.yaml", folder)
        self.commits = [self._update("one", {"target": "local"}), self._update("two", {"target": "local", "x": 2})]
        self.tell()

    def _update(self, word: str, config: dict[str, object]) -> str:
        for name in ("stacks", "infra"):
            (self.folder / name).mkdir(exist_ok=True)
        write_stack(self.folder, bare.STACK, config)
        os.environ["COMMIT"] = commit = self.commit(word)
        assert bare.run("up", word)
        return commit

    def rollback(self, *arguments: str) -> subprocess.Popen[str]:
        """The process of `diphase rollback`, its standard input no terminal."""
        command = [f"{sys.prefix}/bin/diphase", "rollback", "--stack", bare.STACK, *arguments]
        environ = os.environ | {"TMPDIR": str(self.scratch), "PYTHONPATH": str(self.scratch)}
        return subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )

    def said(self, status: int, *arguments: str) -> str:
        """What a rollback that ends with a status says."""
        process = self.rollback(*arguments)
        _, said = process.communicate(timeout=120)
        assert process.returncode == status, said
        assert "Traceback" not in said
        assert self.releases == []
        assert list(self.scratch.iterdir()) == []
        return said


@pytest.fixture(scope="module")
def story() -> Story:
    """One for all tests: none of them changes the stack."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scratch").mkdir()
        patch.setenv("DIPHASE_PROJECT", str(folder / "project"))
        patch.setenv("COMMIT", "")
        yield Story(folder / "project", folder / "scratch")


def test_it_previews_brings_up_and_verifies_with_the_tools_of_the_commit(story: Story) -> None:
    story.tell()
    said = story.said(0, "--yes")
    assert "rollback to update 1 of" in said
    assert "diphase:x: 2 → (absent)" in said
    assert "came from a dirty checkout (x)" in said
    assert f"This checkout is at {story.commits[1][:12]}: `diphase up` here would deploy that again" in said
    assert [call["arguments"][0] for call in story.calls] == ["preview", "up", "verify"]
    assert not any(call["misled"] for call in story.calls)
    up = story.calls[1]
    assert yaml.safe_load(up["config"])["config"] == {"diphase:target": "local"}
    assert "encryptionsalt" in yaml.safe_load(up["config"])
    title, record = parse(up["arguments"][up["arguments"].index("--message") + 1])
    assert title == "Rollback to update 1: word one"
    assert (record.commit, record.version, record.dirty) == (story.commits[0], "1.2", ())
    assert record.rollback == Rollback(2, 1)
    assert record.attempt not in ("", "one", "two")


@pytest.mark.parametrize(
    ("arguments", "told", "status", "says", "called"),
    [
        pytest.param([], {}, 1, "there is no terminal to ask on", [], id="nobody to ask"),
        pytest.param(["--preview"], {}, 0, "rollback to update 1", ["preview"], id="only looked"),
        pytest.param(["--to", "1", "--preview"], {}, 0, "rollback to update 1", ["preview"], id="named"),
        pytest.param(["--to", "2", "--yes"], {}, 1, "update 2 is what stack test runs now", [], id="where it is"),
        pytest.param(["--to", "9", "--yes"], {}, 1, "it has no update 9", [], id="no such update"),
        pytest.param(
            ["--yes"], {"preview": {"steps": [KEY]}}, 1, "would be deleted: --allow api-key", ["preview"], id="a loss"
        ),
        pytest.param(
            ["--yes", "--allow", "api-key"],
            {"preview": {"steps": [KEY]}},
            0,
            "and works",
            ["preview", "up", "verify"],
            id="a loss that is named",
        ),
        pytest.param(["--yes"], {"preview": {"status": 1}}, 1, "the preview failed", ["preview"], id="no preview"),
        pytest.param(["--yes"], {"up": {"status": 1}}, 1, "the rollback failed", ["preview", "up"], id="up failed"),
        pytest.param(
            ["--yes"], {"verify": {"status": 1}}, 1, "is not content", ["preview", "up", "verify"], id="verify failed"
        ),
    ],
)
def test_how_it_ends(
    story: Story, arguments: list[str], told: dict[str, object], status: int, says: str, called: list[str]
) -> None:
    story.tell(**told)
    assert says in story.said(status, *arguments)
    assert [call["arguments"][0] for call in story.calls] == called


@pytest.mark.parametrize(
    ("number", "during"), [(signal.SIGINT, "up"), (signal.SIGTERM, "preview"), (signal.SIGHUP, "up")]
)
def test_what_ends_it_reaches_the_release_once_and_nothing_is_left(
    story: Story, number: signal.Signals, during: str
) -> None:
    story.tell(**{during: {"hang": True}})
    process = story.rollback("--yes")
    eventually((story.folder / "hangs").exists, 60)
    assert story.releases
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert (story.folder / "interrupts").read_text() == "1"
    assert story.releases == []
    assert list(story.scratch.iterdir()) == []
    (story.folder / "hangs").unlink()


def test_a_locked_stack_is_said_before_anything_else(story: Story) -> None:
    folder = story.folder / ".diphase" / "state" / ".pulumi" / "locks" / "organization" / "diphase" / bare.STACK
    folder.mkdir(parents=True, exist_ok=True)
    held = {"pid": 1, "username": "ada", "hostname": "elsewhere", "timestamp": "2026-01-02T03:04:05.6Z"}
    (folder / "lock.json").write_text(json.dumps(held))
    story.tell()
    try:
        assert "stack test is locked by ada@elsewhere" in story.said(1, "--yes")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
            assert bare.engine().locked() is None, "that lock is of another backend's stack"
    finally:
        (folder / "lock.json").unlink()
    assert story.calls == []


def test_a_stack_file_that_is_gone_or_broken_does_not_matter(story: Story) -> None:
    path = story.folder / "stacks" / f"Pulumi.{bare.STACK}.yaml"
    before = path.read_text()
    try:
        for text in (None, "config: [broken"):
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
            story.tell()
            assert "and works" in story.said(0, "--yes")
            written = yaml.safe_load(story.calls[1]["config"])
            assert written["encryptionsalt"] == yaml.safe_load(before)["encryptionsalt"]
    finally:
        path.write_text(before)
