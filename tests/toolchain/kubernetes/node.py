"""A node as the host sees it: a slot, a state folder, PID 1 in namespaces of its own, and the link to it."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from scripts.steps import SetUpError
from tests.toolchain.kubernetes import debian
from tests.toolchain.kubernetes.addresses import Addresses

ROOT = Path(__file__).resolve().parents[3]
CGROUPS = Path("/sys/fs/cgroup")
BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
START_SECONDS = 20.0
END_SECONDS = 20.0


class NodeError(Exception):
    """The node did not do what it was asked to; the message has the end of the log that says why."""


@dataclass(frozen=True)
class Slot:
    """A place for one node: whoever holds `lock` owns the slot's addresses, state folder and cgroups.

    The lock is a socket's name, so that it is of the whole machine, as the addresses are, and is let go of by dying.
    """

    addresses: Addresses
    state: Path
    lock: socket.socket


def take_slot(cache: Path, slots: Iterable[int]) -> Slot:
    """The first free slot, cleared of what a killed run has left; raises SetUpError where all are taken."""
    for number in slots:
        slot = Slot(Addresses(number), _state(cache, number), socket.socket(socket.AF_UNIX))
        if _free(slot):
            clear(slot)
            return slot
        slot.lock.close()
    raise SetUpError("every slot for a node is taken: end one of those that run")


def clear(slot: Slot) -> None:
    """Remove a dead node's cgroups and state; the kernel removes its processes, mounts and, in a while, the link."""
    link = Path("/sys/class/net", slot.addresses.link)
    until(lambda: not link.exists(), END_SECONDS, f"the link {link.name} to go")
    until(lambda: _without_cgroups(slot.addresses.name), END_SECONDS, f"the cgroups {slot.addresses.name} to be empty")
    # Were something mounted below, it would be left alone.
    subprocess.run(["rm", "-rf", "--one-file-system", str(slot.state)], check=True)


class Node:
    """A node that was started; `stop` must be called, and if this process dies the node does too (unless detached)."""

    def __init__(self, slot: Slot, commands: Mapping[str, Sequence[str]], *, detached: bool = False) -> None:
        """Start PID 1 in a slot whose state folder holds the configuration; raises NodeError."""
        self.slot = slot
        self.state = slot.state
        self.addresses = slot.addresses
        _require_bridged()
        for folder in _cgroups(self.addresses.name):
            folder.mkdir(exist_ok=True)
        (self.state / "log").mkdir()
        (self.state / "commands.json").write_text(json.dumps({name: list(each) for name, each in commands.items()}))
        os.mkfifo(self.state / "control")
        self._process = self._spawn(detached)
        try:
            until((self.state / "furnished").exists, START_SECONDS, "the node's first process", self._failed)
            self._pid = psutil.Process(self._process.pid).children()[0].pid
            (self.state / "pid").write_text(str(self._pid))
            self._link()
        except BaseException:
            self.stop()
            raise
        # From here on PID 1 alone holds the slot.
        slot.lock.close()

    def _spawn(self, detached: bool) -> subprocess.Popen[bytes]:
        spaces = [
            "--mount",
            "--net",
            "--pid",
            "--uts",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation=private",
        ]
        program = [sys.executable, "-m", "tests.toolchain.kubernetes.init", str(self.state), self.addresses.name]
        with (self.state / "log" / "init.log").open("wb") as log:
            return subprocess.Popen(
                ["unshare", *spaces, *program, *([] if detached else ["lifeline"])],
                cwd=ROOT,
                # Nothing is ever written to it: that it ends when this process does is what it is for.
                stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": debian.PATH, "OTEL_TRACES_EXPORTER": "none"},
                pass_fds=[self.slot.lock.fileno()],
                start_new_session=True,
            )

    def _failed(self) -> str | None:
        status = self._process.poll()
        return None if status is None else f"it ended with status {status}:\n{self.log_tail('init')}"

    def _link(self) -> None:
        """A veth pair: the host at one end, the node at the other; it goes when the node's network namespace does."""
        host, inside = self.addresses.link, str(self._pid)
        _ip("link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", inside)
        _ip("address", "add", f"{self.addresses.host}/30", "dev", host)
        _ip("link", "set", host, "up")
        for command in (
            ["address", "add", f"{self.addresses.node}/30", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["route", "add", "default", "via", self.addresses.host],
        ):
            self.run("ip", *command)
        for network in (self.addresses.services, self.addresses.pods):
            _ip("route", "add", network, "via", self.addresses.node)

    def start(self, *names: str) -> None:
        """Start programs of the node, or start them again after `stop_programs`."""
        self._tell(f"start {name}\n" for name in names)

    def kill(self, *names: str) -> None:
        """Kill programs of the node; they stay dead until `start`."""
        self._tell(f"stop {name}\n" for name in names)

    def _tell(self, lines: Iterable[str]) -> None:
        with (self.state / "control").open("ab", buffering=0) as control:
            control.write("".join(lines).encode())

    def run(self, *command: str, stdin: IO[bytes] | None = None, timeout: float = 60.0) -> str:
        """Run a command inside the node and give what it printed; raises NodeError where it fails."""
        return run(self._pid, *command, stdin=stdin, timeout=timeout)

    def log_tail(self, name: str, lines: int = 20) -> str:
        """The end of a program's log."""
        path = self.state / "log" / f"{name}.log"
        if not path.exists():
            return f"({name} has no log)"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """End every process of the node and remove what it has left."""
        self.slot.lock.close()
        for child in psutil.Process(self._process.pid).children() if self._process.poll() is None else []:
            child.kill()
        self._process.wait(END_SECONDS)
        if self._process.stdin:
            self._process.stdin.close()
        end(self.state.parents[2], [self.addresses.slot])


def end(cache: Path, slots: Iterable[int]) -> None:
    """End the nodes in some slots, whoever started them, and remove what they have left."""
    for number in slots:
        slot = Slot(Addresses(number), _state(cache, number), socket.socket(socket.AF_UNIX))
        with slot.lock:
            if not _free(slot) and (slot.state / "pid").exists():
                # The lock says that it lives, so the number is still its own.
                psutil.Process(int((slot.state / "pid").read_text())).kill()
            until(functools.partial(_free, slot), END_SECONDS, f"{slot.addresses.name} to end")
            clear(slot)


def run(pid: int, *command: str, stdin: IO[bytes] | None = None, timeout: float = 60.0) -> str:
    """Run a command in the namespaces of the node whose first process is `pid`; raises NodeError where it fails."""
    enter = ["nsenter", f"--target={pid}", "--mount", "--net", "--pid", "--uts"]
    done = subprocess.run(
        [*enter, *command],
        stdin=stdin or subprocess.DEVNULL,
        env={**os.environ, "PATH": debian.PATH},
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise NodeError(f"`{' '.join(command)}` in the node ended with status {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def _state(cache: Path, number: int) -> Path:
    return cache / "toolchain" / "nodes" / str(number)


def _free(slot: Slot) -> bool:
    """Take a slot's lock, if the last process of the node that had it has ended."""
    try:
        # The zero makes it a name that no file has and that the kernel forgets (unix(7)).
        slot.lock.bind(f"\0{slot.addresses.name}")
    except OSError as error:
        # EINVAL: this very socket has the name already.
        return error.errno == errno.EINVAL
    return True


def _cgroups(name: str) -> list[Path]:
    """The node's cgroup: one folder, or with version 1 one for each controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / name]
    return [folder / name for folder in CGROUPS.iterdir() if folder.is_dir() and not folder.is_symlink()]


def _without_cgroups(name: str) -> bool:
    """Remove a node's cgroups, innermost first; False while a process that was killed is not gone from one."""
    for top in _cgroups(name):
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                return False
    return True


def _require_bridged() -> None:
    """NetworkPolicies need packets between pods to pass iptables; raises SetUpError where the kernel can't do that."""
    if BRIDGED.exists():
        return
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "br_netfilter"], capture_output=True, check=False)
    if not BRIDGED.exists():
        raise SetUpError("the kernel does not pass bridged packets to iptables: it needs the module br_netfilter")


def _ip(*arguments: str) -> None:
    done = subprocess.run(
        ["ip", *arguments], env={**os.environ, "PATH": debian.PATH}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NodeError(f"`ip {' '.join(arguments)}`: {done.stderr.strip()}")


def until(
    check: Callable[[], bool], seconds: float, what: str, failed: Callable[[], str | None] = lambda: None
) -> None:
    """Wait for a check to hold; raises NodeError with what `failed` says, or when the time is over."""
    deadline = time.monotonic() + seconds
    while not check():
        why = failed()
        if why is not None:
            raise NodeError(f"waited for {what}: {why}")
        if time.monotonic() > deadline:
            raise NodeError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)
