"""One supervisord: its configuration on disk, its start, what it is asked over its socket, its end."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from supervisor.xmlrpc import Faults, SupervisorTransport

# What a role may see of the environment that `diphase` was called in; its settings come from its resource alone.
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "HF_HOME")
START_SECONDS = 15.0
CALL_SECONDS = 10.0  # of a call over its socket, each of which it answers at once
LOCK_SECONDS = 60.0
POLL_SECONDS = 0.03
LAUNCH = Path(__file__).with_name("launch.py")
# A process that ends within START_SECS of its start counts as failed; after RETRIES of those it is FATAL.
START_SECS = 3
RETRIES = 5


class LocalError(Exception):
    """Something on this machine keeps a resource from being made; the message says what and what to do."""


class Gone(LocalError):
    """There is no supervisord behind the socket."""


class Supervisord:
    """The supervisord whose socket and configuration are in `run`."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.socket = run / "supervisord.sock"
        self._living = run / "living"  # every program holds a shared lock of it

    # Its life

    def start(self, log: Path) -> None:
        """Start it unless it runs; returns when it answers."""
        self.run.mkdir(parents=True, exist_ok=True, mode=0o700)
        log.parent.mkdir(parents=True, exist_ok=True)
        with self.lock():
            if self.alive():
                return
            self.socket.unlink(missing_ok=True)
            (self.run / "programs").mkdir(exist_ok=True)
            for stale in (self.run / "programs").iterdir():
                stale.unlink()
            config = self.run / "supervisord.conf"
            config.write_text(self._text(log))
            environ = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(config)]
            done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, timeout=START_SECONDS)
            if done.returncode != 0:
                raise LocalError(f"supervisord did not start: {(done.stderr or done.stdout).strip()}")
            deadline = time.monotonic() + START_SECONDS
            while not self.alive():
                if time.monotonic() > deadline:
                    raise LocalError(f"supervisord did not answer within {START_SECONDS:.0f} s; its log is {log}")
                time.sleep(POLL_SECONDS)

    def alive(self) -> bool:
        """Whether it answers and is not on its way down; raises LocalError where it is there and does not answer."""
        try:
            return bool(self._call("getState")["statename"] == "RUNNING")
        except Gone:
            return False

    def stop(self, seconds: float) -> None:
        """End it, its processes and its folder; no error where it does not run. Raises LocalError when that lasts."""
        with suppress(LocalError):
            self._call("shutdown")
        deadline = time.monotonic() + seconds
        while self._listening():
            if time.monotonic() > deadline:
                raise LocalError(
                    f"supervisord is still running {seconds:.0f} s after it was told to end: {self.socket}"
                )
            time.sleep(POLL_SECONDS)
        while self._programs_live():  # it was killed, and they are about to end as well
            if time.monotonic() > deadline:
                raise LocalError(
                    f"supervisord is gone, but programs of it still run: `fuser {self._living}` names them"
                )
            time.sleep(POLL_SECONDS)
        shutil.rmtree(self.run, ignore_errors=True)

    def interrupt(self, wanted: bool) -> None:
        """Ask those who wait for its programs to stop waiting, or take that back."""
        mark = self.run / "interrupted"
        if not wanted:
            mark.unlink(missing_ok=True)
        elif self.run.is_dir():
            mark.touch()

    def interrupted(self) -> bool:
        """Whether waiting is to stop."""
        return (self.run / "interrupted").exists()

    def pid(self) -> int:
        """Its process id; raises Gone."""
        return int(self._call("getPID"))

    def _programs_live(self) -> bool:
        if not self._living.exists():
            return False
        with open(self._living) as handle:
            return not _locked(handle)

    def _listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
            return True

    def _text(self, log: Path) -> str:
        return f"""\
; It runs in {_config(sys.prefix)}
[unix_http_server]
file={_config(str(self.socket))}
chmod=0600
[supervisord]
logfile={_config(str(log))}
logfile_maxbytes=5MB
logfile_backups=2
pidfile={_config(str(self.run / "supervisord.pid"))}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[include]
files = {_config(str(self.run))}/programs/*.conf
"""

    # Its programs

    def put(
        self,
        name: str,
        command: list[str],
        environ: Mapping[str, str],
        directory: Path,
        log: Path,
        stop_seconds: float,
        made_from: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write a program and start it; one of that name that runs is stopped (SIGTERM, then SIGKILL) first.

        `made_from` is kept with it, as JSON.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        described = self.run / "programs" / f"{name}.json"
        description = {
            "command": command,
            "environment": dict(environ),
            "directory": str(directory),
            "made_from": dict(made_from),
        }
        launch = [f"{sys.prefix}/bin/python", "-I", "-S", str(LAUNCH), str(described), str(self._living)]
        text = f"""\
[program:{name}]
command={_config(" ".join(shlex.quote(word) for word in launch))}
autorestart=true
startsecs={START_SECS}
startretries={RETRIES}
stopsignal=TERM
stopwaitsecs={int(stop_seconds)}
redirect_stderr=true
stdout_logfile={_config(_config(str(log)))}
stdout_logfile_maxbytes=10MB
stdout_logfile_backups=3
"""
        self.remove(name, stop_seconds)
        with self.lock():
            described.write_text(json.dumps(description))
            self._file(name).write_text(text)
            self._call("reloadConfig")
            self._call("addProcessGroup", name)

    def remove(self, name: str, stop_seconds: float) -> None:
        """Stop a program (SIGTERM, then SIGKILL after `stop_seconds`) and forget it; no error where there is none."""
        deadline = time.monotonic() + stop_seconds + START_SECONDS
        if self.info(name) is None:
            return
        self._call("stopProcessGroup", name, False, allowed=(Faults.NOT_RUNNING, Faults.BAD_NAME))
        while (info := self.info(name)) is not None and info["pid"]:
            if time.monotonic() > deadline:
                raise LocalError(f"{name} (pid {info['pid']}) did not end within {stop_seconds + START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        with self.lock():
            self._file(name).unlink(missing_ok=True)
            self._call("removeProcessGroup", name, allowed=(Faults.BAD_NAME,))

    def info(self, name: str) -> dict[str, Any] | None:
        """supervisord's account of a program (pid, statename, spawnerr, …); None where it knows none of that name."""
        found = self._call("getProcessInfo", name, allowed=(Faults.BAD_NAME,))
        return dict(found) if found is not None else None

    def made_from(self, name: str) -> dict[str, Any]:
        """What a program was put with; empty where that is not known."""
        try:
            described = json.loads((self.run / "programs" / f"{name}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        found: dict[str, Any] = described.get("made_from", {})
        return found

    def infos(self) -> list[dict[str, Any]]:
        """The account of every program."""
        return [dict(info) for info in self._call("getAllProcessInfo")]

    def _file(self, name: str) -> Path:
        return self.run / "programs" / f"{name}.conf"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One change of the configuration at a time, also between processes."""
        if not self.run.is_dir():
            raise Gone(f"there is no supervisord at {self.run}")
        deadline = time.monotonic() + LOCK_SECONDS
        with open(self.run / "lock", "w") as handle:
            while not _locked(handle):
                if time.monotonic() > deadline:
                    raise LocalError(f"another operation has held {handle.name} for {LOCK_SECONDS:.0f} s: end it first")
                time.sleep(POLL_SECONDS)
            yield

    def _call(self, method: str, *args: object, allowed: tuple[int, ...] = ()) -> Any:
        """An RPC; None for a fault in `allowed`. Raises Gone where nobody listens, LocalError for a refusal or none."""
        transport = SupervisorTransport(serverurl=f"unix://{self.socket}")
        transport._get_connection = lambda: _Connection(self.socket)  # its own has no deadline
        proxy = xmlrpc.client.ServerProxy("http://localhost", transport=transport)
        try:
            return getattr(proxy.supervisor, method)(*args)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode in allowed:
                return None
            raise LocalError(f"supervisord refused {method}{args}: {fault.faultString}") from None
        except TimeoutError:
            raise LocalError(
                f"supervisord at {self.socket} has not answered for {CALL_SECONDS:.0f} s: it hangs"
            ) from None
        except (OSError, http.client.HTTPException, xmlrpc.client.ProtocolError) as error:
            raise Gone(f"no supervisord answers at {self.socket}: {error}") from None
        finally:
            transport.close()


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket; reading and writing have a deadline."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CALL_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _locked(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _config(text: str) -> str:
    """A text as supervisord's configuration reads it back; raises LocalError where its syntax cannot hold it."""
    if any(mark in text for mark in ("\n", " ;", " #")):
        raise LocalError(f"supervisord's configuration cannot hold the path {text!r}: use another folder")
    return text.replace("%", "%%")
