"""A model in S3, on moto's server: fetched whole and once, and every fault says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from services.worker import s3_model
from services.worker.model import ModelError, prepare
from tests.ports import free_port

BUCKET, SOURCE = "models", "s3://models/smol/v1"
WEIGHTS = bytes(range(256)) * (3 * s3_model.PART_BYTES // 256)  # of several parts
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
    "model.safetensors": WEIGHTS,
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(20)


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client; the bucket holds the model and other things beside it."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    deadline = time.monotonic() + 60
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
            break
        except EndpointConnectionError:
            assert time.monotonic() < deadline, "moto's server does not start"
            time.sleep(0.1)
    for name, content in FILES.items():
        client.put_object(Bucket=BUCKET, Key=f"smol/v1/{name}", Body=content)
    for key in ("smol/v1/", "smol/v1/README.md", "smol/v1/onnx/config.json", "smol/v10/config.json"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"")
    yield client
    for one in client.list_objects_v2(Bucket=BUCKET)["Contents"]:
        client.delete_object(Bucket=BUCKET, Key=one["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()


def test_the_files_of_the_folder_come_once(s3: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prepared = prepare(SOURCE, None, tmp_path)
    assert (prepared.name, prepared.path.parent) == ("v1", tmp_path / "models")
    assert {path.name: path.read_bytes() for path in prepared.path.iterdir()} == FILES
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in prepared.path.iterdir())
    assert f"fetching 4 files, 0.05 GiB, from {SOURCE}/" in capfd.readouterr().err
    assert prepare(f"{SOURCE}/", None, tmp_path) == prepared
    assert capfd.readouterr().err == ""
    assert prepare(SOURCE, "mine", tmp_path).revision == "mine"

    s3.put_object(Bucket=BUCKET, Key="smol/v1/tokenizer.json", Body=b"[]")
    changed = prepare(SOURCE, None, tmp_path)
    assert changed.revision != prepared.revision
    assert (changed.path / "tokenizer.json").read_bytes() == b"[]"


def test_as_an_init_container_does(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    command = [sys.executable, "-m", "services.worker.model", SOURCE, "--cache", str(tmp_path)]
    done = subprocess.run([*command, "--link", str(tmp_path / "fetched")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fetched" / "model.safetensors").read_bytes() == WEIGHTS
    assert json.loads(done.stdout)["name"] == "v1"


def test_what_a_killed_fetch_left_goes(s3: Any, tmp_path: Path) -> None:
    place = s3_model.Place.of(SOURCE)
    name = f"v1-{s3_model.revision_of(s3_model.listing(place))}"
    left, other = tmp_path / "models" / f".{name}.left", tmp_path / "models" / ".other.left"
    for folder in (left, other):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
    assert prepare(SOURCE, None, tmp_path).path.name == name
    assert not left.exists()
    assert other.exists()


def test_one_that_changes_meanwhile_is_refused(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download = s3_model._download

    def and_then_changes(*arguments: Any) -> None:
        download(*arguments)
        s3.put_object(Bucket=BUCKET, Key="smol/v1/config.json", Body=b'{"model_type": "qwen2"}')

    monkeypatch.setattr(s3_model, "_download", and_then_changes)
    with pytest.raises(ModelError, match="was changed while it was fetched: give each version"):
        prepare(SOURCE, None, tmp_path)
    assert [path for path in (tmp_path / "models").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("s3://", "is not s3://BUCKET/FOLDER"),
        ("s3://No_Bucket/x", "is not s3://BUCKET/FOLDER"),
        ("s3://other-bucket/x", "NoSuchBucket.*look at model.source"),
        ("s3://models/none", "there is no model at s3://models/none/"),
        ("s3://models/smol", "there is no model at s3://models/smol/"),
        ("s3://models/smol/v10", "tokenizer.json: No such file"),
    ],
)
def test_faults(s3: Any, tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        prepare(source, None, tmp_path)


def test_no_credentials(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(ModelError, match=r"no AWS credentials.*service account"):
        prepare(SOURCE, None, tmp_path)


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_model, "ATTEMPTS", 1)
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ModelError, match="Could not connect to the endpoint"):
        prepare(SOURCE, None, tmp_path)


def test_a_disk_that_is_too_small(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_model.shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(ModelError, match=r"takes 0\.05 GiB and 0\.00 GiB are free in .*: make room"):
        prepare(SOURCE, None, tmp_path)
