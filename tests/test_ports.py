"""Ports are given out once, also where several processes ask at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.ports import PORTS, free_port, free_ports

ROOT = Path(__file__).parents[1]
ASK = """
import json, sys
from tests.ports import free_port, free_ports
print(json.dumps([free_port() for _ in range(250)] + [*free_ports(150)]), flush=True)
sys.stdin.read()
"""


def test_none_is_given_out_twice() -> None:
    asked = [
        subprocess.Popen(
            [sys.executable, "-c", ASK], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    given = [free_port(), *free_ports(60)]
    try:
        for process in asked:
            assert process.stdout is not None
            given += json.loads(process.stdout.readline())
    finally:
        for process in asked:
            process.communicate(timeout=60)
    assert len(given) == len(set(given)) == 61 + 3 * 400
    assert set(given) <= set(PORTS)


def test_they_are_in_a_row() -> None:
    ports = free_ports(60)
    assert list(ports) == list(range(ports[0], ports[0] + 60))
