"""Frames are bounded, and what is not a message is a ProtocolError."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kv.transport.protocol import (
    HEADER,
    MAX_FRAME,
    Close,
    Grant,
    Message,
    Open,
    ProtocolError,
    Refuse,
    body_length,
    decode,
    encode,
)

MESSAGES: list[Message] = [
    Open(1, "e", "r", "n", "shm", True),
    Grant(100, 4096, [3, 1, 99], 150, "c" * 16),
    Refuse("lease", "gone"),
    Close(),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_round_trip(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=64))
def test_garbage_is_a_protocol_error_or_a_message(body: bytes) -> None:
    try:
        message = decode(body)
    except ProtocolError:
        return
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "fields", [{"type": "open"}, {"type": "walk"}, {}, {"type": "grant", "num_blocks": "a"}, [1], None, "close"]
)
def test_wrong_fields(fields: object) -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        decode(msgspec.msgpack.encode(fields))


def test_bounds_of_a_frame() -> None:
    assert body_length(HEADER.pack(1)) == 1
    assert body_length(HEADER.pack(MAX_FRAME)) == MAX_FRAME
    for length in (0, MAX_FRAME + 1, 0xFFFFFFFF):
        with pytest.raises(ProtocolError, match="allowed"):
            body_length(HEADER.pack(length))


def test_a_grant_of_a_hundred_thousand_blocks_fits() -> None:
    assert len(encode(Grant(1 << 20, 1 << 20, list(range(1 << 16, (1 << 16) + 100_000)), 1, "c" * 16))) < MAX_FRAME
