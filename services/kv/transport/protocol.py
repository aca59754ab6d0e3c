"""What puller and server say to each other, and how it is framed.

    puller                                server
    Open ────────────────────────────────▶         who asks for which lease
         ◀──────────────────────────────── Grant   (the blocks are pinned now) or Refuse
         ◀──────────────────────────────── bytes   tcp only: the blocks, in the order of the grant
    Close ───────────────────────────────▶         unpins; as does the end of the connection, or the deadline

Close is not answered: the puller has what it came for. The next Open may follow on the same connection.
A frame is a length (four bytes, network order) and that many bytes of MessagePack. With shm, the first grant of a
connection that asked for it carries the descriptor of the server's pool.
"""

from __future__ import annotations

import struct
from typing import Literal

import msgspec

from services.common.settings import Transport

VERSION = 1
MAX_FRAME = 1 << 20  # bytes: room for a hundred thousand block ids
HEADER = struct.Struct("!I")

RefusalCode = Literal["protocol", "version", "transport", "engine", "lease"]


class ProtocolError(Exception):
    """The peer sent what the protocol does not have."""


class PeerClosed(ConnectionError):
    """The peer closed the connection where a message was due."""


class Open(msgspec.Struct, tag="open", frozen=True):
    """Ask for the blocks of a lease."""

    version: int
    engine_id: str
    request_id: str
    nonce: str
    transport: Transport
    want_descriptor: bool = False


class Grant(msgspec.Struct, tag="grant", frozen=True):
    """The blocks, pinned until Close."""

    num_blocks: int  # of the server's pool
    block_bytes: int
    block_ids: list[int]
    num_tokens: int
    kv_checksum: str


class Refuse(msgspec.Struct, tag="refuse", frozen=True):
    """No, and why."""

    code: RefusalCode
    message: str


class Close(msgspec.Struct, tag="close", frozen=True):
    """The puller has the bytes."""


Message = Open | Grant | Refuse | Close
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """A message's body, without its header."""
    return _encoder.encode(message)


def decode(body: bytes | bytearray) -> Message:
    """The message in a body; raises ProtocolError."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a message: {error}") from None


def body_length(header: bytes | bytearray) -> int:
    """The length that a header announces; raises ProtocolError where it is out of bounds."""
    length: int = HEADER.unpack(header)[0]
    if not 1 <= length <= MAX_FRAME:
        raise ProtocolError(f"a frame of {length} bytes; 1 to {MAX_FRAME} are allowed")
    return length
