"""PID 1 of a node: covers what it must not touch on the host, runs the node's programs, reaps what they leave.

Started by node.py in mount, network, PID and UTS namespaces of its own, as
`python -m tests.toolchain.kubernetes.init STATE NAME [lifeline]`. STATE/commands.json has the programs, and lines
`start NAME` and `stop NAME` in the pipe STATE/control say which of them run. With a lifeline it ends when its standard
input does: the kernel then ends everything else in the node. Standard library only, for a quick start.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HOME = Path("/run/node")
RESTART_SECONDS = 0.5
# Where programs write that have no option for it: what they write there, the host never sees.
COVERED = ("/var/lib", "/var/log")
# Settings of the whole machine that a kubelet insists on writing; it gets files to write to instead.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


class Programs:
    """The programs of the node: those that should run are started again whenever they end."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        self._commands = commands
        self._wanted: set[str] = set()
        self._running: dict[int, str] = {}
        self._due: dict[str, float] = {}

    def obey(self, line: str) -> None:
        """Do what a line of the control pipe says; raises KeyError where there is no such program."""
        verb, name = line.split()
        if verb == "start":
            self._wanted.add(name)
            if name not in self._running.values():
                self._start(name)
        else:
            self._wanted.discard(name)
            self._due.pop(name, None)
            for pid in [pid for pid, running in self._running.items() if running == name]:
                os.kill(pid, signal.SIGKILL)

    def tend(self) -> float | None:
        """Reap what has ended and start what is due; gives the seconds until something is due again."""
        while (ended := _reap()) is not None:
            name = self._running.pop(ended[0], None)
            if name is not None:
                print(f"{name} ended: status {os.waitstatus_to_exitcode(ended[1])}", flush=True)
                if name in self._wanted:
                    self._due[name] = time.monotonic() + RESTART_SECONDS
        now = time.monotonic()
        for name in [name for name, when in self._due.items() if when <= now]:
            del self._due[name]
            self._start(name)
        return max(0.0, min(self._due.values()) - now) if self._due else None

    def _start(self, name: str) -> None:
        command = self._commands[name]
        log = str(HOME / "log" / f"{name}.log")
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawnp(command[0], command, os.environ, file_actions=files, setsid=True)
        self._running[pid] = name
        print(f"{name} started: {pid}", flush=True)


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def furnish(state: Path, name: str) -> None:
    """Make the namespaces a node: private /run with the state folder in it, writable layers, forwarding, a hostname."""
    # Pods' volumes are mounts that must reach into containers; from the host's mounts unshare has parted these.
    _mount("--make-rshared", "/")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    HOME.mkdir()
    _mount("--bind", str(state), str(HOME))
    for path in COVERED:
        upper, work = (Path(f"/run/covered{path}/{part}") for part in ("upper", "work"))
        upper.mkdir(parents=True)
        work.mkdir()
        _mount("-t", "overlay", "-o", f"lowerdir={path},upperdir={upper},workdir={work}", "overlay", path)
    for sysctl in SYSCTLS:
        real, stand_in = Path("/proc/sys", sysctl), Path("/run/sysctl", sysctl)
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text(real.read_text())
        _mount("--bind", str(stand_in), str(real))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    socket.sethostname(name)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main(state: Path, name: str, lifeline: bool) -> None:
    """Run until the lifeline is cut, or for ever."""
    control = os.open(state / "control", os.O_RDWR | os.O_NONBLOCK)  # both ends: it never says that all is written
    furnish(state, name)
    os.chdir(HOME)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    programs = Programs(json.loads((HOME / "commands.json").read_text()))
    # The starter waits for this before it lays the link into our network namespace.
    (HOME / "furnished").touch()
    watched = [control, wake, *([sys.stdin] if lifeline else [])]
    pending = b""
    while True:
        readable = select.select(watched, [], [], programs.tend())[0]
        if sys.stdin in readable:
            return
        if wake in readable:
            wake.recv(4096)
        if control in readable:
            *lines, pending = (pending + os.read(control, 4096)).split(b"\n")
            for line in lines:
                programs.obey(line.decode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "lifeline" in sys.argv[3:])
