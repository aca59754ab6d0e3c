"""The images in a node and in its registry."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from tests.toolchain.kubernetes.daemons import CTR
from tests.toolchain.kubernetes.node import Node
from tests.toolchain.kubernetes.slots import remove
from tests.toolchain.kubernetes.waiting import NodeError

LOAD_SECONDS = 900.0


class Images:
    """What containerd has."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loaded = node.slot.kept / "loaded"

    def answers(self) -> bool:
        """Whether containerd answers yet."""
        try:
            self._node.run(*CTR, "version", timeout=5)
        except NodeError:
            return False
        return True

    def forget_containers(self) -> bool:
        """Remove the containers of the node that has had these images before; False where there are none."""
        containers = self._node.run(*CTR, "containers", "ls", "--quiet").split()
        if containers:
            self._node.run(*CTR, "containers", "delete", *containers)
        return bool(containers)

    def digests(self) -> dict[str, str]:
        """Reference → digest of every image in the node."""
        lines = self._node.run(*CTR, "images", "ls").splitlines()[1:]
        return {words[0]: words[2] for words in map(str.split, lines)}

    def load(self, archive: Path) -> list[str]:
        """Put the images of an archive into the node, unless the very same are there; gives their references."""
        # It names what the archive has by content.
        with tarfile.open(archive) as tar:
            manifest = tar.extractfile("manifest.json")
            if manifest is None:
                raise NodeError(f"{archive} is not an archive as `docker save` writes them")
            key = hashlib.sha256(manifest.read()).hexdigest()
        note = self._loaded / key
        if note.exists():
            loaded: dict[str, str] = json.loads(note.read_text())
            if loaded.items() <= self.digests().items():
                return list(loaded)
        # By standard input, because the node has a /run and a /var/lib of its own.
        with archive.open("rb") as file:
            said = self._node.run(*CTR, "images", "import", "-", stdin=file, timeout=LOAD_SECONDS)
        names = [line.split()[1] for line in said.splitlines() if line.startswith("unpacking ")]
        digests = self.digests()
        self._loaded.mkdir(exist_ok=True)
        note.write_text(json.dumps({name: digests[name] for name in names}))
        return names


def forget_tags(registry: Path) -> None:
    """Let a registry's folder keep its layers and forget what they were called: tags may be pushed once."""
    for manifests in registry.rglob("_manifests"):
        remove(manifests)
