"""What a puller remembers of the servers it has met: idle connections and the mappings of their pools.

All of it belongs to one boot of one engine: when the engine id at an address changes, or the connection is refused,
everything known of that address is dropped, and with the mapping the dead process's memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from services.kv.pool import AttachedPool
from services.kv.transport.channel import Channel

Address = tuple[str, int] | str  # TCP host and port, or the path of a Unix socket


@dataclass(slots=True, eq=False)
class Peer:
    """One boot of one engine at one address."""

    address: Address
    engine_id: str
    mapping: AttachedPool | None = None
    idle: list[Channel] = field(default_factory=list)
    busy: int = 0  # pulls that run


class Peers:
    """Thread-safe. Bounded: the peer unused for longest gives way."""

    def __init__(self, *, max_peers: int = 64, max_idle: int = 4) -> None:
        self._max_peers = max_peers
        self._max_idle = max_idle
        self._lock = threading.Lock()
        self._peers: OrderedDict[Address, Peer] = OrderedDict()

    def begin(self, address: Address, engine_id: str) -> Peer:
        """The peer for a pull; `end` must follow."""
        with self._lock:
            peer = self._peers.get(address)
            if peer is not None and peer.engine_id != engine_id:
                self._forget(peer)
                peer = None
            if peer is None:
                peer = self._peers[address] = Peer(address, engine_id)
            self._peers.move_to_end(address)
            peer.busy += 1
            while len(self._peers) > self._max_peers:
                self._forget(next(iter(self._peers.values())))
            return peer

    def end(self, peer: Peer) -> None:
        """The counterpart of `begin`."""
        with self._lock:
            peer.busy -= 1

    def take_idle(self, peer: Peer) -> Channel | None:
        """An idle connection, the last used first."""
        with self._lock:
            return peer.idle.pop() if peer.idle else None

    def put_idle(self, peer: Peer, channel: Channel) -> None:
        """Keep a connection for the next pull, if there is room and the peer is still known."""
        with self._lock:
            if self._peers.get(peer.address) is peer and len(peer.idle) < self._max_idle:
                peer.idle.append(channel)
                return
        channel.close()

    def forget(self, peer: Peer) -> None:
        """Drop a peer; pulls that run on it end as they may."""
        with self._lock:
            self._forget(peer)

    def sweep(self, generation: int = 0) -> None:
        """Drop connections that their server has closed or that were made with other certificates than those of
        `generation`, and peers that none is left to.
        """
        with self._lock:
            for peer in list(self._peers.values()):
                for channel in [c for c in peer.idle if c.generation not in (0, generation) or not c.is_quiet()]:
                    channel.close()
                    peer.idle.remove(channel)
                if not peer.idle and not peer.busy:
                    self._forget(peer)

    def close(self) -> None:
        """Drop everything."""
        with self._lock:
            for peer in list(self._peers.values()):
                self._forget(peer)

    def __len__(self) -> int:
        """Peers known."""
        with self._lock:
            return len(self._peers)

    def _forget(self, peer: Peer) -> None:
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]
        for channel in peer.idle:
            channel.close()
        peer.idle.clear()
        peer.mapping = None
