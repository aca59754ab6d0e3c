"""A role small enough for tests of its supervision: it answers /ready, and fails or drains as its environment says."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PR_SET_PDEATHSIG = 1


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ready = time.monotonic() - began >= float(os.environ.get("READY_AFTER", "0"))
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The log is for what tests look for."""


def drain(_number: int, _frame: object) -> None:
    with contextlib.suppress(OSError):  # its reader may have been killed
        print(f"draining {time.monotonic_ns()}", flush=True)
    time.sleep(float(os.environ.get("DRAIN", "0")))
    os._exit(0)


if __name__ == "__main__":
    began = time.monotonic()
    print(f"{os.environ['INSTANCE']} starts {time.monotonic_ns()} with {os.environ.get('GREETING', '')!r}", flush=True)
    if reason := os.environ.get("FAIL"):
        print(f"cannot go on: {reason}", flush=True)
        sys.exit(3)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, drain)
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
