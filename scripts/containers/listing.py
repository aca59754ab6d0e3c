"""The images that docker holds and those that a registry holds, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from scripts.containers import docker
from scripts.containers.build import LOCAL, ROLES
from scripts.containers.registry import Registry

LABELS = "org.opencontainers.image."


@dataclass(frozen=True)
class Image:
    """A tag of a role's image. `digest` is the registry's, `id` docker's; either may be absent."""

    role: str
    tag: str
    version: str | None
    commit: str | None
    digest: str | None = None
    id: str | None = None

    def document(self) -> dict[str, str | None]:
        """For machines."""
        return asdict(self)


def images(registry: Registry | None) -> list[Image]:
    """All of them, by role and tag; raises OperationFailed."""
    local = {(image.role, image.tag): image for image in _local()}
    pushed = {(image.role, image.tag): image for image in (_pushed(registry) if registry else ())}
    merged = []
    for key in sorted(local.keys() | pushed.keys()):
        here, there = local.get(key), pushed.get(key)
        known = there or here
        assert known is not None
        merged.append(
            Image(*key, known.version, known.commit, there.digest if there else None, here.id if here else None)
        )
    return merged


def _local() -> Iterator[Image]:
    names = docker.ask("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"reference={LOCAL}/*")
    for name in (names or "").split():
        role, _, tag = name.removeprefix(f"{LOCAL}/").partition(":")
        if role in ROLES and (said := docker.ask("image", "inspect", "--format", "{{json .}}", name)):
            inspected = json.loads(said)
            yield Image(role, tag, *_of(inspected["Config"].get("Labels") or {}), id=inspected["Id"])


def _pushed(registry: Registry) -> Iterator[Image]:
    for role in ROLES:
        for tag in registry.tags(role):
            manifest = registry.manifest(role, tag)
            if manifest is not None:
                yield Image(role, tag, *_of(registry.labels(role, manifest)), digest=manifest.digest)


def _of(labels: dict[str, str]) -> tuple[str | None, str | None]:
    return labels.get(f"{LABELS}version"), labels.get(f"{LABELS}revision")
