"""A node as the host sees it: a slot, a state folder, PID 1 in namespaces of its own, and the link to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from scripts.steps import SetUpError
from tests.toolchain.kubernetes import debian, slots
from tests.toolchain.kubernetes.slots import Slot
from tests.toolchain.kubernetes.waiting import NodeError, until

ROOT = Path(__file__).resolve().parents[3]
BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
SPACES = ["--mount", "--propagation=private", "--net", "--pid", "--mount-proc", "--uts", "--fork", "--kill-child"]
START_SECONDS = 60.0


class Node:
    """A node that was started; `stop` must be called, and if this process dies the node does too (unless detached)."""

    def __init__(self, slot: Slot, commands: Mapping[str, Sequence[str]], *, detached: bool = False) -> None:
        """Start PID 1 in a slot whose state folder holds the configuration; raises NodeError."""
        self.slot = slot
        self.state = slot.state
        self.addresses = slot.addresses
        _require_bridged()
        for folder in slots.cgroups(self.addresses.name):
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
        program = [sys.executable, "-m", "tests.toolchain.kubernetes.init", str(self.state), self.addresses.name]
        with (self.state / "log" / "init.log").open("wb") as log:
            return subprocess.Popen(
                ["unshare", *SPACES, *program, *([] if detached else ["lifeline"])],
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
        """Start programs of the node, or start them again after `kill`."""
        self._tell(f"start {name}\n" for name in names)

    def kill(self, *names: str) -> None:
        """Kill programs of the node; they stay dead until `start`."""
        self._tell(f"stop {name}\n" for name in names)

    def restart(self, name: str) -> None:
        """Kill a program of the node, and start it again once it is gone; raises NodeError."""
        before = self.ends(name)
        self.kill(name)
        until(lambda: self.ends(name) > before, slots.END_SECONDS, f"{name} to end")
        self.start(name)

    def ends(self, name: str) -> int:
        """How often a program of the node has ended so far."""
        return (self.state / "log" / "init.log").read_text(errors="replace").count(f"{name} ended: ")

    def _tell(self, lines: Iterable[str]) -> None:
        with (self.state / "control").open("ab", buffering=0) as control:
            control.write("".join(lines).encode())

    def run(self, *command: str, stdin: IO[bytes] | None = None, timeout: float = 60.0) -> str:
        """Run a command inside the node and give what it printed; raises NodeError where it fails."""
        enter = ["nsenter", f"--target={self._pid}", "--mount", "--net", "--pid", "--uts"]
        try:
            done = subprocess.run(
                [*enter, *command],
                stdin=stdin or subprocess.DEVNULL,
                env={**os.environ, "PATH": debian.PATH},
                capture_output=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise NodeError(f"`{' '.join(command)}` in the node has not ended within {timeout:.0f} s") from None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            raise NodeError(f"`{' '.join(command)}` in the node ended with status {done.returncode}: {said}")
        return done.stdout.decode(errors="replace")

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
        self._process.wait(slots.END_SECONDS)
        if self._process.stdin:
            self._process.stdin.close()
        slots.end(self.state.parents[2], [self.addresses.slot])


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
