"""`diphase images`: the roles' container images, built from this checkout and pushed under tags that never move."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from infra.paths import CODE, PathError, project_dir
from scripts.containers import listing, push, record, source
from scripts.containers.build import ROLES, Options, build
from scripts.containers.inventory import SEVERITIES, Inventory
from scripts.containers.registry import Registry
from scripts.faults import OperationFailed
from scripts.options import optional_stack_option
from scripts.releases.source import config_of
from scripts.steps import say

role_option = click.option(
    "--role", "roles", multiple=True, type=click.Choice(ROLES), default=ROLES, help="Only this one; may be repeated."
)
registry_option = click.option(
    "--registry", envvar="DIPHASE_REGISTRY", metavar="HOST/REPO", help="The registry; the stack's when absent."
)
plain_option = click.option(
    "--plain-http", is_flag=True, help="Speak HTTP to the registry; docker must know it as an insecure one."
)


@click.group("images")
def command() -> None:
    """Build the roles' images, push them, list them."""


@command.command("build")
@role_option
@click.option("--base-image", envvar="DIPHASE_BASE_IMAGE", help="Another base than the one in images/base.Dockerfile.")
@click.option("--network", default="default", show_default=True, help="Docker's network for the build's steps.")
@click.option("--worker-requirements", metavar="FILE", help="Another lock for the worker, a path in the project.")
def _build(roles: tuple[str, ...], base_image: str | None, network: str, worker_requirements: str | None) -> None:
    """Build images from this checkout, tagged VERSION-COMMIT."""
    found = _source()
    build(found, roles, Options(base_image, network, worker_requirements))
    for role in roles:
        click.echo(f"diphase/{role}:{found.tag}")


@command.command("push")
@role_option
@registry_option
@plain_option
@optional_stack_option
@click.option("--fail-on", type=click.Choice(SEVERITIES), help="Refuse images with vulnerabilities as severe as this.")
def _push(
    roles: tuple[str, ...], registry: str | None, plain_http: bool, stack: str | None, fail_on: str | None
) -> None:
    """Push what was built; with --stack, its configuration gets the digests.

    A tag that is there already is kept, and must be the same image. Writes .diphase/images/COMMIT.json, and beside it a
    bill of materials and a scan of each image where syft or trivy is installed.
    """
    project, found = _project(), _source()
    chosen = Registry(_registry(project, registry, stack), plain=plain_http)
    inventory = Inventory(record.path(project, found.commit).with_suffix(""), fail_on)
    digests = push.push(found, roles, chosen, inventory.take)
    file = record.write(project, found, chosen.prefix, digests)
    if stack:
        settings = {f"images.digests.{role}": reference for role, reference in digests.items()}
        from scripts.engine import Engine  # Pulumi's SDK, which nothing else here needs

        Engine(stack).configure({"images.registry": chosen.prefix, **settings})
    for reference in digests.values():
        click.echo(reference)
    say(f"recorded in {file}" + (f" and in the configuration of stack {stack}" if stack else ""))


@command.command("ls")
@registry_option
@plain_option
@optional_stack_option
@click.option("--json", "as_json", is_flag=True, help="For machines: {registry, images: [{role, tag, digest, …}]}.")
def _ls(registry: str | None, plain_http: bool, stack: str | None, as_json: bool) -> None:
    """List images: those that docker holds, and those of the registry where one is given."""
    named = _registry(_project(), registry, stack) if registry or stack else None
    chosen = Registry(named, plain=plain_http) if named else None
    found = listing.images(chosen)
    if as_json:
        click.echo(json.dumps({"registry": chosen.prefix if chosen else None, "images": [i.document() for i in found]}))
        return
    table = Table("role", "tag", "in the registry", "built here", box=None)
    for image in found:
        table.add_row(image.role, image.tag, image.digest or "-", (image.id or "-")[:19])
    Console(soft_wrap=True).print(table)


def _project() -> Path:
    try:
        return project_dir(os.environ, Path.cwd())
    except PathError as error:
        raise OperationFailed(str(error)) from None


def _source() -> source.Source:
    found = source.read(CODE)
    if found.changed:
        shown = ", ".join(found.changed[:5]) + (" …" if len(found.changed) > 5 else "")
        say(f"warning: these files differ from the commit, and the tag {found.tag} says so: {shown}")
    return found


def _registry(project: Path, given: str | None, stack: str | None) -> str:
    """The registry that was named, else that of the stack's configuration."""
    named = given or (_configured(project, stack) if stack else None)
    if named is None:
        raise OperationFailed(
            "no registry: give --registry HOST/REPO, or --stack with images.registry in its configuration"
        )
    return named


def _configured(project: Path, stack: str) -> str | None:
    file = project / "stacks" / f"Pulumi.{stack}.yaml"
    if not file.exists():
        raise OperationFailed(f"there is no stack {stack}: {file} does not exist")
    group = config_of(file).get("diphase:images")
    return group.get("registry") if isinstance(group, dict) else None
