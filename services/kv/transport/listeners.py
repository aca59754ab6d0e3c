"""The two listening sockets of a transfer server: a Unix one for shared memory and a TCP one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

BACKLOG = 64
_PROBE_SECONDS = 1.0
_LONGEST_PATH = 103  # bytes: the least that any system takes (macOS), without the closing zero


def listen_unix(path: Path) -> socket.socket:
    """A Unix listener that only this user may connect to.

    A socket that a killed process left behind is replaced; raises OSError if somebody still answers there, ValueError
    if the path is too long.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ValueError(f"the path of a Unix socket has at most {_LONGEST_PATH} bytes: {path}")
    if path.is_socket():
        _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(0o600)  # before listen: until then nobody can connect
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def listen_tcp(host: str, port: int) -> socket.socket:
    """A TCP listener; port 0 takes a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def _remove_stale(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(f"another process serves KV at {path}")
