"""The places for nodes on a machine: who has which, and what a node that has ended leaves in its own."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from scripts.steps import SetUpError
from tests.toolchain.kubernetes.addresses import Addresses
from tests.toolchain.kubernetes.waiting import until

# Slot 0 is for a cluster that was started by hand, the others are for tests.
BY_HAND = range(1)
TESTS = range(1, 16)
# This slot's images and registry stay for its next node: a worker's image takes minutes to unpack.
KEEPS = 1
KEPT_GIGABYTES = 24
CGROUPS = Path("/sys/fs/cgroup")
END_SECONDS = 60.0


@dataclass(frozen=True)
class Slot:
    """A place for one node: whoever holds `lock` owns the slot's addresses, state folder and cgroups.

    The lock is a socket's name, so that it is of the whole machine, as the addresses are, and is let go of by dying.
    """

    addresses: Addresses
    state: Path
    lock: socket.socket

    @property
    def kept(self) -> Path:
        """What the slot's next node starts with, as one that was booted anew; only the slot KEEPS keeps it."""
        return self.state / "kept"

    @property
    def whole(self) -> Path:
        """Tells that what is kept was good for a start; removed before each start, made after it."""
        return self.kept / "whole"

    def free(self) -> bool:
        """Take the lock, if the last process of the node that had it has ended."""
        try:
            # The zero makes it a name that no file has and that the kernel forgets (unix(7)).
            self.lock.bind(f"\0{self.addresses.name}")
        except OSError as error:
            # EINVAL: this very socket has the name already.
            return error.errno == errno.EINVAL
        return True

    def clear(self) -> None:
        """Remove a dead node's cgroups and state; the kernel removes its mounts and, in a while, the link."""
        link = Path("/sys/class/net", self.addresses.link)
        until(lambda: not link.exists(), END_SECONDS, f"the link {link.name} to go")
        name = self.addresses.name
        until(lambda: _without_cgroups(name), END_SECONDS, f"the cgroups {name} to be empty")
        for path in self.state.iterdir() if self.state.exists() else ():
            if path != self.kept or self.addresses.slot != KEEPS:
                remove(path)
        if self.state.exists() and not self.kept.exists():
            self.state.rmdir()


def take(cache: Path, numbers: Iterable[int]) -> Slot:
    """The first free slot, cleared of what a killed run has left; raises SetUpError where all are taken."""
    for number in numbers:
        slot = _slot(cache, number)
        if slot.free():
            slot.clear()
            if not slot.whole.exists() or _gigabytes(slot.kept) > KEPT_GIGABYTES:
                remove(slot.kept)
            slot.whole.unlink(missing_ok=True)
            return slot
        slot.lock.close()
    raise SetUpError("every slot for a node is taken: end one of those that run")


def end(cache: Path, numbers: Iterable[int]) -> None:
    """End the nodes in some slots, whoever started them, and remove what they have left."""
    for number in numbers:
        slot = _slot(cache, number)
        with slot.lock:
            if not slot.free() and (slot.state / "pid").exists():
                # The lock says that it lives, so the number is still its own.
                psutil.Process(int((slot.state / "pid").read_text())).kill()
            until(slot.free, END_SECONDS, f"{slot.addresses.name} to end")
            slot.clear()


def remove(path: Path) -> None:
    """Remove a file or folder; what is mounted below it, were it there against all expectation, stays."""
    subprocess.run(["rm", "-rf", "--one-file-system", str(path)], check=True)


def cgroups(name: str) -> list[Path]:
    """Where a node's cgroup is: one folder, or with version 1 one for each controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / name]
    return [folder / name for folder in CGROUPS.iterdir() if folder.is_dir() and not folder.is_symlink()]


def _slot(cache: Path, number: int) -> Slot:
    state = cache / "toolchain" / "nodes" / str(number)
    return Slot(Addresses(number), state, socket.socket(socket.AF_UNIX))


def _without_cgroups(name: str) -> bool:
    """Remove a node's cgroups, innermost first; False while a process that was killed is not gone from one."""
    for top in cgroups(name):
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                return False
    return True


def _gigabytes(folder: Path) -> int:
    du = ["du", "--summarize", "--block-size=1G", str(folder)]
    return int(subprocess.run(du, capture_output=True, text=True, check=True).stdout.split()[0])
