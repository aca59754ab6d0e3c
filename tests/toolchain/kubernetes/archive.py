"""Writes a container image as a Docker archive: one layer of given files on nothing."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

# What containers call the machines that the kernel names otherwise.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(out: Path, reference: str, entrypoint: Sequence[str], files: Mapping[str, bytes]) -> None:
    """Write `files` (absolute path in the image → content; all executable) as the image `reference` into `out`."""
    layer = _layer(files)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": "tests/toolchain/kubernetes"}],
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{name}.json", "RepoTags": [reference], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(out, "w") as archive:
        _add(archive, f"{name}.json", config)
        _add(archive, f"{digest}/layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _layer(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        made: set[str] = set()
        for path, content in files.items():
            relative = PurePosixPath(path).relative_to("/")
            for parent in reversed(relative.parents[:-1]):
                if str(parent) not in made:
                    made.add(str(parent))
                    folder = tarfile.TarInfo(str(parent))
                    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                    layer.addfile(folder)
            _add(layer, str(relative), content)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))
