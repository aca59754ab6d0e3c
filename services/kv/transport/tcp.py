"""Pulling over TCP: the server writes its blocks to the socket, the puller reads them into its own."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from services.kv.pool import Bytes, runs
from services.kv.transport.channel import Channel, Deadline


def connect(host: str, port: int, deadline: Deadline) -> Channel:
    """A channel to the server at a TCP address."""
    return Channel(socket.create_connection((host, port), timeout=deadline.left()))


def send_blocks(channel: Channel, pool: Bytes, block_ids: Sequence[int], deadline: Deadline) -> None:
    """The server's half."""
    for (first,), length in runs(block_ids):
        channel.send_bytes(pool[first : first + length].reshape(-1).data, deadline)


def receive_blocks(channel: Channel, pool: Bytes, block_ids: Sequence[int], deadline: Deadline) -> None:
    """The puller's half; whatever it raises, the named blocks hold anything afterwards."""
    for (first,), length in runs(block_ids):
        channel.receive_into(pool[first : first + length].reshape(-1).data, deadline)
