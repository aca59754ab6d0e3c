"""The health check says what the role's /health says, and why it cannot."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "images" / "health.py"


def check(**environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)


@contextmanager
def server(status: int) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield str(listening.server_port)
        finally:
            listening.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_the_answer_decides(status: int, code: int) -> None:
    with server(status) as port:
        assert check(PORT=port, HOST="0.0.0.0").returncode == code


def test_the_probe_port_comes_first() -> None:
    with server(200) as probe, server(503) as port:
        assert check(PORT=port, PROBE_PORT=probe).returncode == 0


def test_nobody_listens() -> None:
    with server(200) as port:
        pass
    done = check(PORT=port)
    assert done.returncode == 1
    assert "refused" in done.stderr


def test_no_port_is_said() -> None:
    done = check()
    assert (done.returncode, done.stderr) == (1, "set PORT or PROBE_PORT\n")
