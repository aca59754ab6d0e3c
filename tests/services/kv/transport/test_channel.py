"""A channel moves frames and bytes whole, and every wait on it ends."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.common.tls import Certificates
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.protocol import HEADER, MAX_FRAME, Close, Grant, PeerClosed, ProtocolError
from services.kv.transport.secure import SecureChannel
from tests.services.common.certificates import Authority, mount


@pytest.fixture(params=["unix", "tcp", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Channel, Channel]]:
    if request.param == "unix":
        ends = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            one = socket.create_connection(listener.getsockname())
            ends = one, listener.accept()[0]
    if request.param == "tls":
        certificates = Certificates("internal", mount(tmp_path / "tls", Authority().internal()))
        left, right = (
            SecureChannel(end, certificates, server_side=side) for end, side in zip(ends, (False, True), strict=True)
        )
        shaking = threading.Thread(target=right.begin, args=(Deadline(20),))
        shaking.start()
        left.begin(Deadline(20))
        shaking.join(20)
    else:
        left, right = map(Channel, ends)
    yield left, right
    left.close()
    right.close()


def test_frames_and_bytes(pair: tuple[Channel, Channel]) -> None:
    left, right = pair
    grant = Grant(10, 4, [1, 2], 3, "x")
    data = os.urandom(8 << 20)
    room = bytearray(len(data))

    def send() -> None:
        left.send(grant, Deadline(10))
        left.send_bytes(memoryview(data), Deadline(10))
        left.send(Close(), Deadline(10))

    sender = threading.Thread(target=send)
    sender.start()
    assert right.receive(Deadline(10)) == grant
    right.receive_into(memoryview(room), Deadline(10))
    assert right.receive(Deadline(10)) == Close()
    sender.join(10)
    assert room == data


def test_every_wait_ends_at_the_deadline(pair: tuple[Channel, Channel]) -> None:
    left, right = pair
    with pytest.raises(TimeoutError):
        left.receive(Deadline(0.05))
    right.send_bytes(memoryview(HEADER.pack(100)), Deadline(1))  # a frame that never comes
    with pytest.raises(TimeoutError):
        left.receive(Deadline(0.05))
    with pytest.raises(TimeoutError):  # nobody reads
        right.send_bytes(memoryview(bytes(64 << 20)), Deadline(0.05))
    with pytest.raises(TimeoutError):
        left.send(Close(), Deadline(-1))


def test_a_trickle_does_not_extend_the_deadline(pair: tuple[Channel, Channel]) -> None:
    left, right = pair
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(0.005):
            right.send_bytes(memoryview(b"x"), Deadline(1))

    thread = threading.Thread(target=trickle)
    thread.start()
    with pytest.raises(TimeoutError):
        left.receive_into(memoryview(bytearray(1 << 20)), Deadline(0.1))
    over.set()
    thread.join(10)


def test_the_peer_hangs_up(pair: tuple[Channel, Channel]) -> None:
    left, right = pair
    left.send_bytes(memoryview(HEADER.pack(100) + b"some"), Deadline(1))
    left.close()
    with pytest.raises(PeerClosed):
        right.receive(Deadline(5))


@pytest.mark.parametrize("header", [0, MAX_FRAME + 1, 0x47455420])  # the last is "GET "
def test_no_such_frame(pair: tuple[Channel, Channel], header: int) -> None:
    left, right = pair
    left.send_bytes(memoryview(HEADER.pack(header)), Deadline(1))
    with pytest.raises(ProtocolError, match="frame"):
        right.receive(Deadline(5))


def test_quiet_is_open_with_nothing_to_read(pair: tuple[Channel, Channel]) -> None:
    left, right = pair
    assert left.is_quiet()
    right.send_bytes(memoryview(b"x"), Deadline(1))
    assert select.select([left.sock], [], [], 10)[0], "it has not arrived"
    assert not left.is_quiet()
    left.receive_into(memoryview(bytearray(1)), Deadline(10))
    assert left.is_quiet()
    right.interrupt()
    assert select.select([left.sock], [], [], 10)[0]
    assert not left.is_quiet()


def test_interrupt_wakes_who_waits(pair: tuple[Channel, Channel]) -> None:
    left, _ = pair
    timer = threading.Timer(0.05, left.interrupt)
    timer.start()
    with pytest.raises(PeerClosed):
        left.receive(Deadline(30))
    timer.join()


def test_a_descriptor_travels_with_a_frame() -> None:
    left, right = map(Channel, socket.socketpair())
    read_end, write_end = os.pipe()
    left.send(Close(), Deadline(1), write_end)
    left.send(Close(), Deadline(1))
    message, received = right.receive_with_descriptor(Deadline(1))
    assert message == Close()
    assert received is not None
    assert not os.get_inheritable(received)
    os.write(received, b"hello")
    assert os.read(read_end, 5) == b"hello"
    assert right.receive_with_descriptor(Deadline(1)) == (Close(), None)
    for descriptor in (read_end, write_end, received):
        os.close(descriptor)
    left.close()
    right.close()


def test_a_descriptor_with_a_bad_frame_is_closed() -> None:
    left, right = map(Channel, socket.socketpair())
    read_end, write_end = os.pipe()
    socket.send_fds(left.sock, [HEADER.pack(5) + b"hello"], [write_end])
    os.close(write_end)
    with pytest.raises(ProtocolError):
        right.receive_with_descriptor(Deadline(1))
    assert os.read(read_end, 1) == b""  # the end of file: no writer is left
    os.close(read_end)
    left.close()
    right.close()
