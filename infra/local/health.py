"""What a role says of itself, and what its log ends with."""

from __future__ import annotations

import errno
import http.client
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

PROBE_SECONDS = 2.0
TAIL_LINES = 15
TAIL_BYTES = 16 * 1024


def ready(url: str) -> bool:
    """Whether GET {url}/ready answers 200 within two seconds."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def port_taken(host: str, port: int) -> str | None:
    """Why a server could not listen there; None where it could."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return (
                "another program listens there" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
            )
    return None


def log_tail(path: Path) -> str:
    """The last lines of a log, each indented; says so where there is nothing."""
    try:
        with open(path, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    except FileNotFoundError:
        lines = []
    return "\n".join(f"  {line}" for line in lines) or "  (the log is empty)"
