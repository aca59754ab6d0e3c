"""Malformed requests get the right status and a message that says what to do, and leave nothing behind."""

from __future__ import annotations

import socket

import pytest

from tests.e2e.stack import MODEL, Stack
from tests.services.gateway.malformed import MALFORMED, Malformed, send


def test_there_are_fifty() -> None:
    assert len(MALFORMED) >= 50
    assert len({case.name for case in MALFORMED}) == len(MALFORMED)


def test_malformed_requests(stack: Stack) -> None:
    """All in one test, since the stack's state is compared before and after them."""
    faults = []
    for case in MALFORMED:
        fault = _judge(stack, case)
        if fault:
            faults.append(f"{case.name}: {fault}")
    assert not faults, "\n".join(faults)
    answer = stack.client().completions.create(model=MODEL, prompt="Still here?", max_tokens=2)
    assert answer.usage.completion_tokens >= 1
    # The fixture checks after this that every block and lease is back.


def _judge(stack: Stack, case: Malformed) -> str | None:
    status, body = send("127.0.0.1", stack.base_port, case, stack.api_key, MODEL)
    return case.fault(status, body)


@pytest.mark.parametrize(
    "raw", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n"]
)
def test_what_is_not_http_does_not_hurt(stack: Stack, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", stack.base_port), timeout=10) as peer:
        peer.sendall(raw)
        assert peer.recv(64).startswith((b"HTTP/1.1 4", b""))
    assert stack.client().models.list().data
