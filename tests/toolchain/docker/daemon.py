"""A real Docker daemon for tests, with a socket of its own, and data in the cache, so that a second build is quick."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from scripts.steps import say
from tests.toolchain.kubernetes import debian

START_SECONDS = 60.0
STOP_SECONDS = 30.0
# Another run of the tests may have the data; it is waited for.
LOCK_SECONDS = 900.0
CALL_SECONDS = 900.0
KEEP = "6GB"  # of the build cache, when the daemon stops


class DockerError(Exception):
    """The daemon did not start, or docker failed; the message is what it said."""


class Docker:
    """A daemon that runs; call it like the command: `docker("run", "--rm", image)` gives what that printed."""

    def __init__(self, socket: Path) -> None:
        # The client that comes with the daemon's package: another on PATH may lack the plugin that builds.
        self.program = shutil.which("docker", path=f"/usr/bin:{debian.PATH}") or "docker"
        self.environ = {
            "DOCKER_HOST": f"unix://{socket}",
            "DOCKER_BUILDKIT": "1",
            "DOCKER_CONFIG": str(socket.parent / "client"),
            "DIPHASE_DOCKER": self.program,
        }

    @classmethod
    @contextmanager
    def running(cls, cache: Path) -> Iterator[Docker]:
        """A daemon for as long as the block runs; if this process is killed, the daemon ends as well.

        Raises debian.Unavailable where this machine can't run one, DockerError where it does not start.
        """
        if os.geteuid() != 0:
            raise debian.Unavailable("needs root: Docker's daemon mounts file systems")
        debian.require(debian.IMAGES)
        home = cache / "docker"
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "lock", "w") as lock, tempfile.TemporaryDirectory(prefix="docker-") as folder:
            _take(lock, home)
            _clean_up_after_a_killed_run(home / "folder", Path(folder))
            with _daemon(Path(folder), home / "data") as socket:
                docker = cls(socket)
                docker.remove_containers()
                try:
                    yield docker
                finally:
                    docker.remove_containers()
                    docker("image", "prune", "--force")
                    docker("builder", "prune", "--force", "--keep-storage", KEEP)

    def __call__(self, *arguments: str, stdin: IO[bytes] | None = None) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            env={**os.environ, **self.environ},
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            timeout=CALL_SECONDS,
        )
        if done.returncode != 0:
            raise DockerError(f"docker {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace").strip()

    def inspect(self, name: str) -> dict[str, object]:
        """What docker knows of an image or a container."""
        found: list[dict[str, object]] = json.loads(self("inspect", name))
        return found[0]

    def logs(self, name: str) -> str:
        """The last lines that a container wrote to either stream."""
        command = [self.program, "logs", "--tail", "30", name]
        done = subprocess.run(
            command, env={**os.environ, **self.environ}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
        )
        return done.stdout.decode(errors="replace")

    def remove_containers(self) -> None:
        """End and remove every container: all are of tests."""
        if names := self("ps", "--all", "--quiet").split():
            self("rm", "--force", "--volumes", *names)


def _take(lock: IO[str], home: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DockerError(f"{home} has been in use by another process for {LOCK_SECONDS:.0f} s") from None
            if not told:
                say(f"    another process uses {home}: waiting for it")
            told = True
            time.sleep(0.5)


@contextmanager
def _daemon(folder: Path, data: Path) -> Iterator[Path]:
    socket, log = folder / "docker.sock", folder / "log"
    (folder / "client").mkdir()
    command = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        "--",
        "dockerd",
        "--host",
        f"unix://{socket}",
        "--data-root",
        str(data),
    ]
    command += ["--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid")]
    # Containers use the host's network or none; the firewall stays as it is.
    command += ["--bridge", "none", "--iptables=false", "--ip6tables=false"]
    # The registries of the tests' clusters.
    command += ["--insecure-registry", "10.89.0.0/16"]
    with open(log, "wb") as out:
        daemon = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, "PATH": debian.PATH}, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(socket):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise DockerError(f"dockerd did not start:\n{_end(log)}")
            time.sleep(0.05)
        yield socket
    finally:
        _stop(daemon, folder)


def _answers(socket: Path) -> bool:
    command = [Docker(socket).program, "--host", f"unix://{socket}", "version", "--format", "{{.Server.Version}}"]
    return socket.exists() and subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def _stop(daemon: subprocess.Popen[bytes], folder: Path) -> None:
    daemon.terminate()
    try:
        daemon.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        # Its session holds its containerd, too.
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait(STOP_SECONDS)
    _unmount(folder)


def _unmount(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((name for name in mounts if name.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)


def _clean_up_after_a_killed_run(note: Path, folder: Path) -> None:
    """Its daemon has ended with it; its folder is still there. The note says which it was, and from now on is ours."""
    if note.exists():
        before = Path(note.read_text())
        _unmount(before)
        shutil.rmtree(before, ignore_errors=True)
    note.write_text(str(folder))


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
