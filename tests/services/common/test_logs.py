"""Logs as a role writes them: in a process of its own, on its standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).parents[3]
ROLE = """
import logging, sys
import uvloop
from services.common import http_server, logs, role
from services.common.settings import RoleSettings

async def main():
    logs.configure("test", "info")
    logs.get().info("with an id", request_id="req-1")
    logging.getLogger("another").warning("by the standard library")
    try:
        1 / 0
    except ZeroDivisionError:
        logs.get().exception("failed")
    await role.serve(http_server.App(), RoleSettings(instance="test", port=int(sys.argv[1]), drain_seconds=1.0))

uvloop.run(main())
"""


def start() -> tuple[subprocess.Popen[bytes], list[dict[str, str]]]:
    """A role that serves, and what it has said so far."""
    process = subprocess.Popen(
        [sys.executable, "-c", ROLE, str(free_port())],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(json.loads(line))
        if lines[-1]["event"] == "serving":
            break
    return process, lines


def test_one_object_a_line() -> None:
    process, lines = start()
    process.terminate()
    _, said = process.communicate(timeout=20)
    lines += [json.loads(line) for line in said.splitlines()]
    assert all({"time", "level", "instance", "event"} <= line.keys() for line in lines)
    assert lines[0]["request_id"] == "req-1"
    assert (lines[1]["event"], lines[1]["level"]) == ("by the standard library", "warning")
    assert "ZeroDivisionError" in lines[2]["exception"]
    assert "stopping" in [line["event"] for line in lines]


def test_a_role_whose_logs_nobody_reads_still_ends_when_told_to() -> None:
    """As after its supervisor was killed: then the kernel's SIGTERM is all that ends it."""
    process, _ = start()
    assert process.stderr is not None
    process.stderr.close()
    process.terminate()
    try:
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait(10)
