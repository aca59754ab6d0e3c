"""Installs the Debian packages that a test needs, where apt can and nobody minds: as root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.steps import SetUpError, Step, run

# Programs and the package that brings each.
NODE = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "socat": "socat",
    "nsenter": "util-linux",
}
METRICS = {"prometheus": "prometheus", "promtool": "prometheus"}
IMAGES = {"dockerd": "docker.io", "debootstrap": "debootstrap"}
# A user's PATH may lack what root needs.
PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
# What maintainers' scripts ask whether they may start a daemon: no, tests start their own.
POLICY = Path("/usr/sbin/policy-rc.d")


class Unavailable(SetUpError):
    """This machine cannot have the packages; the message says why and what to do."""


def missing(programs: dict[str, str]) -> list[str]:
    """The packages of those programs that are not there."""
    return sorted({package for program, package in programs.items() if shutil.which(program, path=PATH) is None})


def require(programs: dict[str, str]) -> None:
    """Install the packages of the programs that are missing; raises Unavailable where that cannot be done."""
    packages = missing(programs)
    if not packages:
        return
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise Unavailable(f"needs {names}, and there is no apt-get to install them with")
    if os.geteuid() != 0:
        raise Unavailable(f"needs root, or `apt-get install {names}` beforehand")
    environ = {**os.environ, "PATH": PATH, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", *packages]
    with Step(f"Debian packages {names}"), _no_daemons():
        try:
            run(install, environ)
        except SetUpError:
            run(["apt-get", "update", "-q", "-o", "DPkg::Lock::Timeout=300"], environ)
            run(install, environ)
    still = missing(programs)
    if still:
        raise Unavailable(f"{' '.join(still)} installed, but a program is still missing")


@contextmanager
def _no_daemons() -> Iterator[None]:
    """Keep packages from starting what they bring, unless the machine already has a policy of its own."""
    try:
        descriptor = os.open(POLICY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    except FileExistsError:
        yield
        return
    os.write(descriptor, b"#!/bin/sh\nexit 101\n")
    os.close(descriptor)
    try:
        yield
    finally:
        POLICY.unlink()
