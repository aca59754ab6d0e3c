"""Builds the images: the shared base first, then one for each role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.containers import docker, fetching
from scripts.containers.source import Source
from scripts.steps import Step

ROLES = ("gateway", "scheduler", "worker", "kv")
LOCAL = "diphase"  # images are DIPHASE/ROLE:TAG until they are pushed


@dataclass(frozen=True)
class Options:
    """What a person may choose: another base, docker's network for steps, another lock for the worker."""

    base_image: str | None = None
    network: str = "default"
    worker_requirements: str | None = None


def local_reference(role: str, source: Source) -> str:
    """The name under which docker holds an image after the build."""
    return f"{LOCAL}/{role}:{source.tag}"


def build(source: Source, roles: Sequence[str], options: Options) -> None:
    """Build the images of `roles`; raises OperationFailed with the end of what a failed build said."""
    base = {name: f"{LOCAL}/{target}:{source.tag}" for name, target in (("BUILD", "base-build"), ("BASE", "base-run"))}
    labels = {"VERSION": source.version, "COMMIT": source.commit, "CREATED": source.created}
    with fetching.secrets() as secrets:
        common = ["build", "--progress", "plain", "--network", options.network, *secrets]
        for target in ("build", "run"):
            arguments = {"BASE_IMAGE": options.base_image} if options.base_image else {}
            tag = f"{LOCAL}/base-{target}:{source.tag}"
            _build(source.folder, "base", tag, arguments, [*common, "--target", target])
        for role in roles:
            arguments = {**base, **labels}
            if role == "worker" and options.worker_requirements:
                arguments["REQUIREMENTS"] = options.worker_requirements
            _build(source.folder, role, local_reference(role, source), arguments, common)


def _build(folder: Path, name: str, tag: str, arguments: dict[str, str], command: list[str]) -> None:
    steps = 0

    def count(line: str) -> None:
        nonlocal steps
        steps += " DONE " in line or line.endswith("CACHED")

    with Step(tag, lambda: f"({steps} steps)"):
        file = folder / "images" / f"{name}.Dockerfile"
        given = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
        docker.do([*command, "--file", str(file), "--tag", tag, *given, str(folder)], on_line=count)
