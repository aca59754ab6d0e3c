"""An update's configuration as a stack file, and how configurations differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from scripts.faults import OperationFailed
from scripts.releases.history import state
from scripts.releases.recorded import UNREADABLE, differences, of_file, write
from scripts.releases.updates import Value
from tests.infra.project import make_project, write_stack
from tests.scripts.releases import bare


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"d:a": Value("1")}, {"d:a": Value(1)}, []),
        ({"d:a": Value("true")}, {"d:a": Value(True)}, []),
        ({"d:a": Value({"b": 7})}, {"d:a": Value({"b": 7.0})}, []),
        ({"d:a": Value({"b": 1, "c": [1]})}, {"d:a": Value({"b": 2, "c": [1]})}, ["d:a.b: 1 → 2"]),
        ({"d:a": Value({"c": [1]})}, {"d:a": Value({"c": [1, 2]})}, ["d:a.c: [1] → [1, 2]"]),
        ({}, {"d:a": Value("x")}, ["d:a: (absent) → x"]),
        ({"d:a": Value({"b": {"c": 1}})}, {}, ["d:a.b.c: 1 → (absent)"]),
        ({"d:a": Value({})}, {"d:a": Value({"b": 1})}, ["d:a: {} → (absent)", "d:a.b: (absent) → 1"]),
        ({"d:k": Value("one", True)}, {"d:k": Value("two", True)}, ["d:k: [secret] → another [secret]"]),
        ({"d:k": Value("one", True)}, {"d:k": Value("one", True)}, []),
        ({"d:k": Value("one", True)}, {"d:k": Value(None, True)}, []),
        ({"d:k": Value("one", True)}, {"d:k": Value("plain")}, ["d:k: [secret] → plain"]),
        ({"d:k": Value("one", True)}, {}, ["d:k: [secret] → (absent)"]),
    ],
)
def test_differences(before: dict[str, Value], after: dict[str, Value], lines: list[str]) -> None:
    assert differences(before, after) == lines


def test_a_stack_files_configuration() -> None:
    text = yaml.safe_dump(
        {
            "encryptionsalt": "v1:x",
            "config": {
                "diphase:target": "local",
                "short": 5,
                "diphase:key": {"secure": "v1:y"},
                "diphase:group": {"inner": [{"secure": "v1:z"}]},
            },
        }
    )
    assert of_file(text) == {
        "diphase:target": Value("local"),
        "diphase:short": Value(5),
        "diphase:key": Value(None, True),
        "diphase:group": Value(None, True),
    }
    assert of_file(None) == of_file("") == of_file("config:") == of_file("[]") == {}


def test_what_is_written_is_what_was_recorded_and_secrets_are_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "project", monkeypatch)
    write_stack(project, bare.STACK, {"target": "local"})
    assert bare.run("up", "one")
    engine = bare.engine()
    before = engine.config_file.read_text()
    config = {
        "diphase:target": Value("local"),
        "diphase:decode": Value({"replicas": 2, "idleWaitMs": 12.5}),
        "diphase:token": Value("two\nlines: é\n", True),
        "diphase:group": Value({"password": "hidden"}, True),
    }
    path = tmp_path / "Pulumi.test.yaml"
    write(engine, 1, config, state(engine).encryption, path)
    text = path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert "hidden" not in text
    assert "two" not in text
    assert of_file(text)["diphase:decode"] == config["diphase:decode"]
    shown = json.loads(engine.pulumi("config", "--json", "--show-secrets", "--config-file", str(path)))
    assert {key: value["value"] for key, value in shown.items() if value["secret"]} == {
        "diphase:token": "two\nlines: é\n",
        "diphase:group": '{"password": "hidden"}',
    }
    assert yaml.safe_load(text)["encryptionsalt"] == yaml.safe_load(before)["encryptionsalt"]
    assert engine.config_file.read_text() == before, "the stack's own file is left alone"


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path / "project", monkeypatch)
    path = tmp_path / "Pulumi.test.yaml"
    with pytest.raises(OperationFailed, match="diphase:token of update 4 cannot be decrypted"):
        write(bare.engine(), 4, {"diphase:token": Value(UNREADABLE, True)}, {}, path)
    assert not path.exists()
