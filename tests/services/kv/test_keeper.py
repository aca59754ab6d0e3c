"""The keeper gives each block back once, whichever threads end its lease, and tells what it counted."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from services.common.errors import KvUnavailable
from services.kv.checksum import kv_checksum
from services.kv.keeper import LeaseKeeper
from services.kv.pool import SharedPool


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    pool = SharedPool(64, 64)
    yield pool
    pool.close()


class World:
    """A keeper with a clock in hand."""

    def __init__(self, pool: SharedPool) -> None:
        self.now = 1000.0
        self.freed: list[int] = []
        self.keeper = LeaseKeeper(pool, self.freed.extend, lease_seconds=30, ttl_seconds=300, clock=lambda: self.now)


def test_counts(pool: SharedPool) -> None:
    world = World(pool)
    keeper = world.keeper
    keeper.grant("a", [0, 1], 10)
    keeper.grant("a", [2], 10)
    keeper.grant("b", [3, 4, 5], 10)
    keeper.release("a")
    keeper.release("a")
    with pytest.raises(KvUnavailable):
        keeper.renew("a", "x")
    world.now += 31
    keeper.sweep()
    counts = keeper.counts()
    assert (counts.open, counts.blocks_held) == (0, 0)
    assert (counts.granted, counts.released, counts.expired, counts.replaced, counts.refused) == (3, 1, 1, 1, 1)
    assert world.freed == [0, 1, 2, 3, 4, 5]


def test_the_lease_carries_the_checksum(pool: SharedPool) -> None:
    world = World(pool)
    pool.array[3] = 8
    lease = world.keeper.grant("a", [3, 1], 10)
    assert lease.kv_checksum == kv_checksum(pool.array, [3, 1])
    assert lease.expires_at == 1030.0


def test_blocks_outside_the_pool_stay_the_callers(pool: SharedPool) -> None:
    world = World(pool)
    with pytest.raises(ValueError, match="64"):
        world.keeper.grant("a", [0, 64], 10)
    assert (world.freed, len(world.keeper)) == ([], 0)


def test_a_read_that_fails_unpins(pool: SharedPool) -> None:
    world = World(pool)
    lease = world.keeper.grant("a", [0], 10)

    def read() -> None:
        with world.keeper.reading("a", lease.nonce):
            world.keeper.release("a")
            assert world.freed == []
            assert world.keeper.counts().blocks_held == 1
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        read()
    assert world.freed == [0]


def test_free_may_call_back(pool: SharedPool) -> None:
    """The engine's lock and the keeper's are never held together."""
    seen = []
    keeper = LeaseKeeper(pool, lambda blocks: seen.append(keeper.counts().open), lease_seconds=1, ttl_seconds=1)
    keeper.grant("a", [0], 1)
    keeper.release("a")
    assert seen == [0]


def test_threads_that_race_free_every_block_once(pool: SharedPool) -> None:
    lock, freed = threading.Lock(), Counter[int]()

    def free(blocks: object) -> None:
        with lock:
            freed.update(blocks)  # type: ignore[call-overload]

    keeper = LeaseKeeper(pool, free, lease_seconds=30, ttl_seconds=300)
    granted: Counter[int] = Counter()

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(300):
            request_id = f"req-{dice.randrange(4)}"
            block = dice.randrange(64)
            with lock:
                granted[block] += 1
            lease = keeper.grant(request_id, [block], 1)
            try:
                with keeper.reading(request_id, lease.nonce):
                    if dice.random() < 0.5:
                        keeper.release(request_id, lease.nonce)
            except KvUnavailable:  # another thread took the request id
                pass
            keeper.release(request_id, lease.nonce)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert freed == granted
    assert keeper.counts().blocks_held == 0
