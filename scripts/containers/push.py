"""Pushes images under tags that never move: a tag that is there already must be the very same image."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scripts.containers import docker
from scripts.containers.build import local_reference
from scripts.containers.registry import Manifest, Registry
from scripts.containers.source import Source
from scripts.faults import OperationFailed
from scripts.steps import Step


def push(
    source: Source, roles: Sequence[str], registry: Registry, before: Callable[[str, str], None] = lambda *_: None
) -> dict[str, str]:
    """Push each role's image; gives role → HOST/REPO/ROLE@DIGEST. `before` is given role and name of what is pushed.

    An image that this machine has not built is taken as the registry has it. Raises OperationFailed, before anything is
    pushed, where a tag would move or an image is nowhere.
    """
    local = {role: docker.image_id(local_reference(role, source)) for role in roles}
    there = {role: registry.manifest(role, source.tag) for role in roles}
    for role in roles:
        _check(registry, role, source, local[role], there[role])
    digests = {}
    for role in roles:
        manifest = there[role] or _push(registry, role, source, str(local[role]), before)
        digests[role] = f"{registry.prefix}/{role}@{manifest.digest}"
    return digests


def _check(registry: Registry, role: str, source: Source, local: str | None, there: Manifest | None) -> None:
    built, name = local_reference(role, source), f"{registry.prefix}/{role}:{source.tag}"
    if there is None and local is None:
        raise OperationFailed(f"{built} is not built here, and {name} does not exist: `diphase images build` first")
    if there is not None and local is not None and local not in there.ids:
        raise OperationFailed(
            f"{name} is {there.digest} already, and what was built here is another image; a tag never moves. Deploy "
            f"the one that is there (`docker image rm {built}`, then push again), or commit and build anew"
        )


def _push(registry: Registry, role: str, source: Source, local: str, before: Callable[[str, str], None]) -> Manifest:
    name = f"{registry.prefix}/{role}:{source.tag}"
    built = local_reference(role, source)
    before(role, built)
    with Step(name):
        docker.do(["tag", built, name])
        docker.do(["push", name])
    pushed = registry.manifest(role, source.tag)
    if pushed is None or local not in pushed.ids:
        held = pushed.digest if pushed else "nothing"
        raise OperationFailed(f"{name} was pushed, but the registry holds {held} there: somebody else pushed it, too")
    return pushed
