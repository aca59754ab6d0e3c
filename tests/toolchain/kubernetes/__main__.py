"""A cluster to play with: `up` starts it, `eval "$(… env)"` points kubectl at it, `down` ends it."""

from __future__ import annotations

import os
import shlex
import sys

import click

from infra.paths import cache_dir
from scripts.steps import SetUpError, Step, say
from tests.toolchain.kubernetes import slots
from tests.toolchain.kubernetes.addresses import Addresses
from tests.toolchain.kubernetes.cluster import Cluster, create, make_ready
from tests.toolchain.kubernetes.programs import prepare, prepare_provider
from tests.toolchain.kubernetes.slots import BY_HAND
from tests.toolchain.kubernetes.waiting import NodeError


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
def build() -> None:
    """Build the cluster's programs and Pulumi's Kubernetes provider, where they are missing."""
    cache = cache_dir(os.environ)
    say(f"{prepare(cache).folder}\n{prepare_provider(cache)}")


@main.command()
@click.option("--dns/--no-dns", default=True, help="Answer names of Services.")
@click.option("--policies/--no-policies", default=True, help="Enforce NetworkPolicies.")
def up(dns: bool, policies: bool) -> None:
    """Start a cluster that stays until `down`."""
    cache = cache_dir(os.environ)
    toolchain = make_ready(cache)
    with Step("A cluster of one node"):
        try:
            slot = slots.take(cache, BY_HAND)
        except SetUpError:
            raise SetUpError("it is up already, here or from another cache: `down` ends it") from None
        node = create(slot, toolchain, detached=True)
        try:
            Cluster(node, toolchain).start(dns=dns, policies=policies)
        except BaseException:
            node.stop()
            raise
    say('eval "$(python -m tests.toolchain.kubernetes env)"')


@main.command()
def down() -> None:
    """End the cluster that `up` has started, and remove all that it has left."""
    slots.end(cache_dir(os.environ), BY_HAND)


@main.command()
def env() -> None:
    """Print what a shell needs to use the cluster."""
    cache = cache_dir(os.environ)
    addresses = Addresses(BY_HAND[0])
    variables = {
        "KUBECONFIG": str(cache / "toolchain" / "nodes" / "0" / "pki" / "admin.kubeconfig"),
        "PATH": f"{prepare(cache).bin}:{os.environ['PATH']}",
        "NODE": addresses.node,
        "REGISTRY": addresses.registry,
    }
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")


try:
    main(prog_name="python -m tests.toolchain.kubernetes")
except (SetUpError, NodeError) as error:
    sys.exit(str(error))
