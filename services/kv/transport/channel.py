"""One connection that carries frames and raw bytes, every operation with a deadline."""

from __future__ import annotations

import os
import socket
import struct
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

from services.kv.transport.protocol import HEADER, Message, PeerClosed, body_length, decode, encode

_CLOEXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # Linux
_TIMEVAL = struct.Struct("@ll")


class Deadline:
    """A moment that several operations share."""

    __slots__ = ("at",)

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left, above zero; raises TimeoutError where there are none."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        return left


class Channel:
    """Owns a stream socket. One thread at a time.

    What operations raise: TimeoutError, other OSErrors (PeerClosed where the peer hung up), ProtocolError.
    After any of them the stream is out of step: close the channel.
    """

    generation = 0  # of the certificates that it was made with, where it was

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(None)  # the kernel keeps the time, see _limit
        if sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self, deadline: Deadline) -> None:
        """Get ready for the first frame: nothing is to be done here."""

    def connect(self, path: str, deadline: Deadline) -> None:
        """Connect to a Unix socket; waits while its queue is full."""
        self._limit(socket.SO_SNDTIMEO, deadline)
        with _timely():
            self.sock.connect(path)

    def send(self, message: Message, deadline: Deadline, descriptor: int | None = None) -> None:
        """Send a frame, and with it a duplicate of `descriptor` (Unix sockets)."""
        body = encode(message)
        frame = HEADER.pack(len(body)) + body
        if descriptor is not None:
            self._limit(socket.SO_SNDTIMEO, deadline)
            with _timely():
                sent = socket.send_fds(self.sock, [frame], [descriptor])
            frame = frame[sent:]
        self.send_bytes(memoryview(frame), deadline)

    def receive(self, deadline: Deadline) -> Message:
        """Wait for a frame."""
        header = bytearray(HEADER.size)
        self.receive_into(memoryview(header), deadline)
        return self._body(header, deadline)

    def receive_with_descriptor(self, deadline: Deadline) -> tuple[Message, int | None]:
        """Wait for a frame that may carry a descriptor, which is the caller's to close."""
        self._limit(socket.SO_RCVTIMEO, deadline)
        descriptors = array("i")
        with _timely():  # not socket.recv_fds: it drops its flags
            header, ancillary, _, _ = self.sock.recvmsg(HEADER.size, socket.CMSG_SPACE(descriptors.itemsize), _CLOEXEC)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data)
        try:
            if not header:
                raise PeerClosed("the peer closed the connection")
            rest = bytearray(HEADER.size - len(header))
            self.receive_into(memoryview(rest), deadline)
            message = self._body(header + rest, deadline)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return message, descriptors[0] if descriptors else None

    def send_bytes(self, data: memoryview, deadline: Deadline) -> None:
        """Send all of `data` as it is."""
        while data.nbytes:
            self._limit(socket.SO_SNDTIMEO, deadline)
            with _timely():
                count = self.sock.send(data)
            data = data[count:]

    def receive_into(self, room: memoryview, deadline: Deadline) -> None:
        """Fill all of `room`."""
        while room.nbytes:
            self._limit(socket.SO_RCVTIMEO, deadline)
            with _timely():
                count = self.sock.recv_into(room, 0, socket.MSG_WAITALL)
            if not count:
                raise PeerClosed("the peer closed the connection")
            room = room[count:]

    def is_quiet(self) -> bool:
        """Open, and nothing to read: what an idle channel must be. Does not wait."""
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def interrupt(self) -> None:
        """From another thread: whoever waits on this channel gets an error."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed already
            return

    def close(self) -> None:
        """Idempotent."""
        self.sock.close()

    def _limit(self, option: int, deadline: Deadline) -> None:
        """Bound the next call by the kernel's timer, the socket being in blocking mode.

        So a whole block moves in one system call. With Python's own timeouts each piece that a socket buffer holds
        takes two, and after each of them this thread would wait for the GIL, up to 5 ms while another one computes.
        """
        seconds, micros = divmod(max(1, round(deadline.left() * 1e6)), 1_000_000)
        self.sock.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(seconds, micros))

    def _body(self, header: bytes | bytearray, deadline: Deadline) -> Message:
        body = bytearray(body_length(header))
        self.receive_into(memoryview(body), deadline)
        return decode(body)


@contextmanager
def _timely() -> Iterator[None]:
    """The kernel's word for a timer that ran out is EAGAIN."""
    try:
        yield
    except BlockingIOError:
        raise TimeoutError("the deadline has passed") from None
