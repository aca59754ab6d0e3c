"""Pulling over shared memory: map the peer's pool once, then copy blocks straight out of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import numpy as np

from services.kv.pool import AttachedPool, Bytes, runs
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.protocol import Grant, Message, ProtocolError


def connect(path: str, deadline: Deadline) -> Channel:
    """A channel to the server at a Unix socket."""
    channel = Channel(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        channel.connect(path, deadline)
    except BaseException:
        channel.close()
        raise
    return channel


def attach(grant: Grant, descriptor: int | None) -> AttachedPool:
    """Map the pool whose descriptor came with a grant; raises ProtocolError."""
    if descriptor is None:
        raise ProtocolError("the grant came without the pool's descriptor")
    try:
        return AttachedPool(descriptor, grant.num_blocks, grant.block_bytes)
    except ValueError as error:
        raise ProtocolError(str(error)) from None


def receive_grant(channel: Channel, deadline: Deadline) -> tuple[Message, AttachedPool | None]:
    """The answer to an Open that asked for the descriptor."""
    message, descriptor = channel.receive_with_descriptor(deadline)
    if isinstance(message, Grant):
        return message, attach(message, descriptor)
    if descriptor is not None:
        os.close(descriptor)
    return message, None


def copy_blocks(source: Bytes, source_ids: Sequence[int], target: Bytes, target_ids: Sequence[int]) -> None:
    """Copy blocks between pools, one copy for each run of neighbours; numpy lets go of the GIL meanwhile."""
    for (theirs, ours), length in runs(source_ids, target_ids):
        np.copyto(target[ours : ours + length], source[theirs : theirs + length])
