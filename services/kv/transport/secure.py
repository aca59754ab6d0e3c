"""A channel inside TLS: the same frames and bytes with the same deadlines, between workers that know each other."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from services.common.tls import INTERNAL_NAME, Certificates
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.protocol import PeerClosed

HANDSHAKE_SECONDS = 10.0
_SLACK = 0.02  # seconds: how late a deadline may be kept, so that it is not set again for each record of 16 kB


class SecureChannel(Channel):
    """Takes over a connected TCP socket; `begin` must be called first."""

    def __init__(self, sock: socket.socket, certificates: Certificates, *, server_side: bool) -> None:
        self.generation = certificates.generation
        context = certificates.server if server_side else certificates.client()
        name = None if server_side else INTERNAL_NAME
        try:
            secure = context.wrap_socket(
                sock, server_side=server_side, server_hostname=name, do_handshake_on_connect=False
            )
        except BaseException:
            sock.close()
            raise
        super().__init__(secure)
        self._secure = secure
        self._limited: tuple[Deadline | None, float] = None, 0.0

    def begin(self, deadline: Deadline) -> None:
        """Shake hands."""
        self._limit(socket.SO_RCVTIMEO, deadline)
        with _closed():
            self._secure.do_handshake()

    def send_bytes(self, data: memoryview, deadline: Deadline) -> None:
        """Send all of `data`."""
        while data.nbytes:
            self._limit(socket.SO_SNDTIMEO, deadline)
            with _closed():
                count = self._secure.send(data)
            data = data[count:]

    def receive_into(self, room: memoryview, deadline: Deadline) -> None:
        """Fill all of `room`; OpenSSL gives a record of 16 kB at a time."""
        while room.nbytes:
            self._limit(socket.SO_RCVTIMEO, deadline)
            with _closed():
                count = self._secure.recv_into(room)
            if not count:
                raise PeerClosed("the peer closed the connection")
            room = room[count:]

    def is_quiet(self) -> bool:
        """Open, with nothing to read, not even a word of TLS's own."""
        if self._secure.pending():
            return False
        self.sock.settimeout(None)
        self._limited = None, 0.0
        try:
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)  # past TLS
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def interrupt(self) -> None:
        """From another thread: whoever waits on this channel gets an error."""
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)  # SSLSocket's own would go on without TLS
        except OSError:  # closed already
            return

    def _limit(self, option: int, deadline: Deadline) -> None:
        """Bound the next call by Python's timer: the kernel's begins anew with each piece that OpenSSL asks for."""
        known, since = self._limited
        left = deadline.left()
        if known is deadline and time.monotonic() - since < _SLACK:
            return
        self._limited = deadline, time.monotonic()
        self.sock.settimeout(left)


@contextmanager
def _closed() -> Iterator[None]:
    """OpenSSL's words for a connection that has ended are no ConnectionError."""
    try:
        yield
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise PeerClosed(f"the peer closed the connection: {error}") from None
