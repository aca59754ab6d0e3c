"""Ports for processes that tests start.

They lie below those that the kernel gives to clients, and each process that runs tests has some to itself: it claims
them by holding the first of them, so that tests which run side by side never get the same one.
"""

from __future__ import annotations

import atexit
import socket

HOST = "127.0.0.1"
PORTS = range(10_000, 32_000)
CLAIM = 200  # ports that are claimed together
_claimed: list[range] = []


def free_port() -> int:
    """A port that nobody uses, never given out before."""
    return free_ports(1)[0]


def free_ports(number: int) -> range:
    """So many of them in a row, at most CLAIM - 1."""
    assert 0 < number < CLAIM
    while True:
        left = _claimed.pop() if _claimed else _claim()
        while len(left) >= number:
            found, left = left[:number], left[1:]
            if all(map(_is_free, found)):
                _claimed.append(left[number - 1 :])
                return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _claim() -> range:
    for first in PORTS[::CLAIM]:
        guard = socket.socket()
        try:
            guard.bind((HOST, first))
        except OSError:
            guard.close()
            continue
        atexit.register(guard.close)  # until then it is the mark of the claim
        return range(first + 1, first + CLAIM)
    raise RuntimeError(f"no ports are free in {PORTS}")
