"""Pulls the KV that a handle names into our own pool, and verifies it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from services.common.errors import KvUnavailable
from services.common.settings import Transport
from services.common.tls import Certificates
from services.common.wire import KvTransferParams
from services.kv.checksum import check_block_ids, kv_checksum
from services.kv.pool import AttachedPool, Bytes
from services.kv.transport import shm, tcp
from services.kv.transport.channel import Channel, Deadline
from services.kv.transport.peers import Address, Peer, Peers
from services.kv.transport.protocol import VERSION, Close, Grant, Message, Open, ProtocolError, Refuse


@dataclass(frozen=True, slots=True)
class Transfer:
    """A pull that went well; `seconds` from its call, checksum included."""

    transport: Transport
    bytes: int
    seconds: float


class TransferClient:
    """Thread-safe; keeps connections and mappings between pulls. Call `sweep` every second or so.

    With `certificates`, what comes by TCP comes inside TLS.
    """

    def __init__(self, certificates: Certificates | None = None) -> None:
        self._peers = Peers()
        self._certificates = certificates

    def pull(
        self,
        handle: KvTransferParams,
        pool: Bytes,
        block_ids: Sequence[int],
        transport: Transport,
        timeout: float,
    ) -> Transfer:
        """Fill our blocks `block_ids` with those of the handle, in order.

        Raises KvUnavailable, within `timeout` seconds, whatever goes wrong between the two workers; then our blocks
        hold anything. ValueError where `block_ids` are not in the pool or not as many as the handle's.
        """
        theirs = handle.remote_block_ids or []
        if len(theirs) != len(block_ids):
            raise ValueError(f"{len(block_ids)} blocks to receive {len(theirs)}")
        check_block_ids(block_ids, len(pool))
        started, deadline = time.monotonic(), Deadline(timeout)
        peer = self._peers.begin(_address(handle, transport), handle.remote_engine_id or "")
        try:
            _Pull(self._peers, peer, handle, transport, deadline, self._certificates).run(pool, block_ids)
        except TimeoutError:
            raise KvUnavailable(f"{_name(handle)}: not here within {timeout:.1f} s by {transport}") from None
        except (OSError, ProtocolError) as error:
            raise KvUnavailable(f"{_name(handle)}: {transport} transfer failed: {error}") from error
        finally:
            self._peers.end(peer)
        if kv_checksum(pool, block_ids) != handle.kv_checksum:
            raise KvUnavailable(f"{_name(handle)}: the bytes are not those that were granted")
        return Transfer(transport, len(block_ids) * pool.shape[1], time.monotonic() - started)

    def sweep(self) -> None:
        """Let go of servers that are gone, and of their memory."""
        self._peers.sweep(0 if self._certificates is None else self._certificates.generation)

    def close(self) -> None:
        """Let go of all servers."""
        self._peers.close()


class _Pull:
    """One pull from one peer."""

    def __init__(
        self,
        peers: Peers,
        peer: Peer,
        handle: KvTransferParams,
        transport: Transport,
        deadline: Deadline,
        certificates: Certificates | None,
    ) -> None:
        self._peers, self._peer, self._handle = peers, peer, handle
        self._transport, self._deadline = transport, deadline
        self._certificates = certificates

    def run(self, pool: Bytes, block_ids: Sequence[int]) -> None:
        """Bring the bytes; raises OSError, ProtocolError or KvUnavailable, and then the connection is closed."""
        channel, answer, mapping = self._open()
        try:
            grant = self._granted(answer, pool.shape[1])
            if self._transport == "tcp":
                tcp.receive_blocks(channel, pool, block_ids, self._deadline)
            elif mapping is not None:
                shm.copy_blocks(mapping.array, grant.block_ids, pool, block_ids)
            channel.send(Close(), self._deadline)
        except BaseException:
            channel.close()
            raise
        self._peers.put_idle(self._peer, channel)

    def _open(self) -> tuple[Channel, Message, AttachedPool | None]:
        """Ask on an idle connection, or if there is none or it turns out to be stale, on a new one."""
        channel = self._peers.take_idle(self._peer)
        if channel is not None:
            try:
                return channel, *self._ask(channel)
            except ConnectionError:
                channel.close()
            except BaseException:
                channel.close()
                raise
        try:
            channel = self._connect()
        except OSError:
            self._peers.forget(self._peer)  # a server that does not answer is not remembered
            raise
        try:
            return channel, *self._ask(channel)
        except BaseException:
            channel.close()
            raise

    def _connect(self) -> Channel:
        address = self._peer.address
        if isinstance(address, str):
            return shm.connect(address, self._deadline)
        return tcp.connect(*address, self._deadline, self._certificates)

    def _ask(self, channel: Channel) -> tuple[Message, AttachedPool | None]:
        """The answer, and with shm the peer's pool."""
        handle, peer = self._handle, self._peer
        mapping = peer.mapping
        unmapped = self._transport == "shm" and mapping is None
        channel.send(
            Open(
                VERSION,
                peer.engine_id,
                handle.remote_request_id or "",
                handle.nonce or "",
                self._transport,
                unmapped,
            ),
            self._deadline,
        )
        if not unmapped:
            return channel.receive(self._deadline), mapping
        message, mapping = shm.receive_grant(channel, self._deadline)
        peer.mapping = mapping
        return message, mapping

    def _granted(self, answer: Message, block_bytes: int) -> Grant:
        """The grant, if it is one and of what the handle names."""
        name = _name(self._handle)
        if isinstance(answer, Refuse):
            if answer.code == "engine":
                self._peers.forget(self._peer)
            raise KvUnavailable(f"{name}: refused: {answer.message}")
        if not isinstance(answer, Grant):
            raise ProtocolError(f"{type(answer).__name__} where Grant was due")
        if answer.block_bytes != block_bytes:
            raise KvUnavailable(f"{name}: blocks of {answer.block_bytes} bytes, ours have {block_bytes}")
        if (answer.block_ids, answer.kv_checksum) != (self._handle.remote_block_ids, self._handle.kv_checksum):
            raise KvUnavailable(f"{name}: the handle names other blocks than the lease")
        if not all(0 <= block < answer.num_blocks for block in answer.block_ids):
            raise ProtocolError("the grant names blocks outside its pool")
        return answer


def _address(handle: KvTransferParams, transport: Transport) -> Address:
    if transport == "shm":
        if handle.remote_socket is None:
            raise KvUnavailable(f"{_name(handle)}: its worker serves no shared memory")
        return handle.remote_socket
    if handle.remote_host is None or handle.remote_port is None:
        raise KvUnavailable(f"{_name(handle)}: its worker serves no TCP")
    return handle.remote_host, handle.remote_port


def _name(handle: KvTransferParams) -> str:
    return f"KV of {handle.remote_request_id}"
