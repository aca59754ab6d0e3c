"""Serves KV blocks under lease to pullers on the same host (shm) and elsewhere (tcp).

One thread accepts, one serves each connection, up to a bound. A lease is pinned from the grant until the puller closes,
vanishes, or its time is over; so no block goes back to the engine while somebody reads it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from services.common import logs
from services.common.errors import KvUnavailable
from services.common.settings import Transport
from services.common.tls import Certificates
from services.kv.keeper import LeaseKeeper
from services.kv.lease import Lease
from services.kv.transport import tcp
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.listeners import listen_tcp, listen_unix
from services.kv.transport.protocol import VERSION, Close, Grant, Open, PeerClosed, ProtocolError, Refuse
from services.kv.transport.secure import HANDSHAKE_SECONDS, SecureChannel

IDLE_SECONDS = 300.0  # how long a connection may lie unused
_STOP_SECONDS = 5.0
_log = logs.get()


@dataclass(frozen=True, slots=True)
class Served:
    """One transfer, seen from the server; `bytes` of shm are those that the puller was let read."""

    transport: Transport
    bytes: int
    seconds: float


@dataclass(slots=True, eq=False)
class _Connection:
    channel: Channel
    transport: Transport
    idle_since: float | None = None  # None while it has something to do, or has to


class TransferServer:
    """Serves what `leases` keeps, from construction until `stop`.

    `unix_path` and `tcp_host` say where to listen; None leaves a transport out. With `certificates`, TCP is inside TLS
    and for who shows one of the same CA. `timeout` is the most that one transfer may take, in seconds; beyond
    `max_connections` the longest idle one gives way, and if none is idle newcomers wait. `on_served` is called after
    each transfer that went well, from its thread.
    """

    def __init__(
        self,
        leases: LeaseKeeper,
        engine_id: str,
        *,
        unix_path: Path | None = None,
        tcp_host: str | None = None,
        tcp_port: int = 0,
        certificates: Certificates | None = None,
        timeout: float,
        max_connections: int = 64,
        on_served: Callable[[Served], None] = lambda _served: None,
    ) -> None:
        self._leases = leases
        self._engine_id = engine_id
        self._certificates = certificates
        self._timeout = timeout
        self._on_served = on_served
        self._slots = threading.Semaphore(max_connections)
        self._lock = threading.Lock()
        self._connections: dict[_Connection, threading.Thread] = {}
        self._stopping = threading.Event()
        self._bound_path: Path | None = None
        self._selector = selectors.DefaultSelector()
        self._wake, waker = socket.socketpair()
        self._selector.register(waker, selectors.EVENT_READ, None)
        self._sockets = [self._wake, waker]
        self.tcp_port: int | None = None
        try:
            if unix_path is not None:
                self._listen(listen_unix(unix_path), "shm")
                self._bound_path = unix_path
            if tcp_host is not None:
                listener = listen_tcp(tcp_host, tcp_port)
                self.tcp_port = listener.getsockname()[1]
                self._listen(listener, "tcp")
        except BaseException:
            self._close_sockets()
            raise
        self._accepter = threading.Thread(target=self._accept, name="kv-accept", daemon=True)
        self._accepter.start()

    def stop(self) -> None:
        """Stop listening and break off what runs; idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._wake.send(b"x")
        self._accepter.join(_STOP_SECONDS)
        with self._lock:
            running = dict(self._connections)
        for connection in running:
            connection.channel.interrupt()
        for thread in running.values():
            thread.join(_STOP_SECONDS)
        self._close_sockets()

    # -- the accepting thread
    def _listen(self, listener: socket.socket, transport: Transport) -> None:
        listener.setblocking(False)
        self._sockets.append(listener)
        self._selector.register(listener, selectors.EVENT_READ, transport)

    def _close_sockets(self) -> None:
        self._selector.close()
        for sock in self._sockets:
            sock.close()
        if self._bound_path is not None:
            self._bound_path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                assert isinstance(key.fileobj, socket.socket)
                try:
                    channel = self._channel(key.fileobj.accept()[0], key.data)
                except OSError as error:  # it went before we came, or no descriptors are left
                    _log.warning("kv_accept_failed", error=str(error))
                    self._stopping.wait(0.05)
                    continue
                self._admit(channel, key.data)

    def _channel(self, sock: socket.socket, transport: Transport) -> Channel:
        if transport == "tcp" and self._certificates is not None:
            return SecureChannel(sock, self._certificates, server_side=True)
        return Channel(sock)

    def _admit(self, channel: Channel, transport: Transport) -> None:
        deadline = time.monotonic() + self._timeout
        while not self._slots.acquire(timeout=0.05):
            self._evict_idle()
            if self._stopping.is_set() or time.monotonic() > deadline:
                _log.warning("kv_connection_turned_away", reason="all are busy")
                channel.close()
                return
        connection = _Connection(channel, transport)
        thread = threading.Thread(target=self._serve, args=(connection,), name="kv-serve", daemon=True)
        with self._lock:
            self._connections[connection] = thread
        thread.start()

    def _evict_idle(self) -> None:
        with self._lock:
            idle = [(c.idle_since, c.channel) for c in self._connections if c.idle_since is not None]
            if idle:
                min(idle, key=lambda item: item[0])[1].interrupt()

    # -- a connection's thread
    def _serve(self, connection: _Connection) -> None:
        channel = connection.channel
        try:
            channel.begin(Deadline(min(self._timeout, HANDSHAKE_SECONDS)))
            while not self._stopping.is_set():
                idle = connection.idle_since is not None
                message = channel.receive(Deadline(IDLE_SECONDS if idle else self._timeout))
                connection.idle_since = None
                if not isinstance(message, Open):
                    raise ProtocolError(f"{type(message).__name__} where Open was due")
                self._answer(connection, message)
                connection.idle_since = time.monotonic()
        except PeerClosed:
            pass  # the ordinary end of a connection
        except ProtocolError as error:
            _log.warning("kv_protocol_error", error=str(error))
            with contextlib.suppress(OSError):
                channel.send(Refuse("protocol", str(error)), Deadline(1.0))
        except OSError as error:
            if connection.idle_since is None and not self._stopping.is_set():
                _log.warning("kv_transfer_broken", transport=connection.transport, error=str(error))
        finally:
            channel.close()
            with self._lock:
                del self._connections[connection]
            self._slots.release()

    def _answer(self, connection: _Connection, asked: Open) -> None:
        deadline = Deadline(self._timeout)
        refusal = self._refusal(connection, asked)
        if refusal is None:
            try:
                with self._leases.reading(asked.request_id, asked.nonce) as lease:
                    self._transfer(connection, asked, lease, deadline)
                return
            except KvUnavailable as error:
                refusal = Refuse("lease", error.message)
        _log.info("kv_refused", request_id=asked.request_id, code=refusal.code, reason=refusal.message)
        connection.channel.send(refusal, deadline)

    def _refusal(self, connection: _Connection, asked: Open) -> Refuse | None:
        if asked.version != VERSION:
            return Refuse("version", f"this server speaks version {VERSION}, not {asked.version}")
        if asked.transport != connection.transport:
            return Refuse("transport", f"{asked.transport} was asked for where {connection.transport} is served")
        if asked.engine_id != self._engine_id:
            return Refuse("engine", f"engine {asked.engine_id} is not here any more; this is {self._engine_id}")
        return None

    def _transfer(self, connection: _Connection, asked: Open, lease: Lease, deadline: Deadline) -> None:
        started = time.monotonic()
        channel, pool, blocks = connection.channel, self._leases.pool, list(lease.blocks)
        shared = connection.transport == "shm"
        grant = Grant(pool.num_blocks, pool.block_bytes, blocks, lease.num_tokens, lease.kv_checksum)
        channel.send(grant, deadline, pool.fd if shared and asked.want_descriptor else None)
        if not shared:
            tcp.send_blocks(channel, pool.array, blocks, deadline)
        try:
            message = channel.receive(deadline)
        except PeerClosed:
            raise ConnectionResetError(f"the puller of {asked.request_id} went away in its transfer") from None
        if not isinstance(message, Close):
            raise ProtocolError(f"{type(message).__name__} where Close was due")
        size = len(blocks) * pool.block_bytes
        self._on_served(Served(connection.transport, size, time.monotonic() - started))
