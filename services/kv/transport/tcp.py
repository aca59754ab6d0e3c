"""Pulling over TCP: the server writes its blocks to the socket, the puller reads them into its own."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from services.common.tls import Certificates
from services.kv.pool import Bytes, runs
from services.kv.transport.brisk import brisk
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.secure import SecureChannel


def connect(host: str, port: int, deadline: Deadline, certificates: Certificates | None = None) -> Channel:
    """A channel to the server at a TCP address, inside TLS if there are certificates; it has begun."""
    sock = socket.create_connection((host, port), timeout=deadline.left())
    if certificates is None:
        return Channel(sock)
    channel = SecureChannel(sock, certificates, server_side=False)
    try:
        channel.begin(deadline)
    except BaseException:
        channel.close()
        raise
    return channel


def send_blocks(channel: Channel, pool: Bytes, block_ids: Sequence[int], deadline: Deadline) -> None:
    """The server's half."""
    with _pace(channel):
        for (first,), length in runs(block_ids):
            channel.send_bytes(pool[first : first + length].reshape(-1).data, deadline)


def receive_blocks(channel: Channel, pool: Bytes, block_ids: Sequence[int], deadline: Deadline) -> None:
    """The puller's half; whatever it raises, the named blocks hold anything afterwards."""
    with _pace(channel):
        for (first,), length in runs(block_ids):
            channel.receive_into(pool[first : first + length].reshape(-1).data, deadline)


def _pace(channel: Channel) -> AbstractContextManager[None]:
    return brisk() if isinstance(channel, SecureChannel) else nullcontext()
