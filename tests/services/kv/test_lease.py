"""Leases: every block comes back once, never while it is read, and no stale reference is honoured."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from services.common.errors import KvUnavailable
from services.kv.lease import Lease, LeaseTable


def _table(lease_seconds: float = 30.0, ttl_seconds: float = 300.0) -> LeaseTable:
    return LeaseTable(lease_seconds=lease_seconds, ttl_seconds=ttl_seconds)


def test_release_gives_the_blocks_back_once() -> None:
    table = _table()
    lease, _ = table.grant("a", [1, 2], 0.0)
    assert table.release("a", lease.nonce) == [1, 2]
    assert table.release("a", lease.nonce) == []
    assert table.release("a") == []
    assert (len(table), table.blocks_held) == (0, 0)


def test_release_without_nonce_releases_whatever_there_is() -> None:
    table = _table()
    table.grant("a", [1], 0.0)
    assert table.release("b") == []
    assert table.release("a") == [1]


def test_a_lease_expires_unless_renewed() -> None:
    table = _table(30, 300)
    lease, _ = table.grant("a", [1], 0.0)
    table.grant("b", [2], 0.0)
    assert table.renew("a", lease.nonce, 20.0) == 50.0
    assert table.expire(29.9) == []
    assert table.expire(30.0) == [2]
    assert table.expire(49.9) == []
    assert table.expire(50.0) == [1]
    assert table.outcomes["expired"] == 2


def test_renewals_end_at_the_ttl() -> None:
    table = _table(30, 100)
    lease, _ = table.grant("a", [1], 0.0)
    ends = [table.renew("a", lease.nonce, now) for now in (25.0, 50.0, 75.0, 99.0)]
    assert ends == [55.0, 80.0, 100.0, 100.0]
    with pytest.raises(KvUnavailable, match="expired"):
        table.renew("a", lease.nonce, 100.0)


def test_a_ttl_below_the_lease_bounds_it() -> None:
    lease, _ = _table(30, 10).grant("a", [1], 5.0)
    assert lease.expires_at == 15.0


def test_blocks_that_are_read_stay_until_the_last_reader_ends() -> None:
    table = _table()
    lease, _ = table.grant("a", [1, 2], 0.0)
    assert table.begin_read("a", lease.nonce, 1.0) is lease
    table.begin_read("a", lease.nonce, 1.0)
    assert table.release("a", lease.nonce) == []
    assert (len(table), table.blocks_held) == (0, 2)
    with pytest.raises(KvUnavailable):
        table.begin_read("a", lease.nonce, 1.0)
    assert table.end_read(lease) == []
    assert table.end_read(lease) == [1, 2]
    assert table.blocks_held == 0
    with pytest.raises(ValueError, match="nobody reads"):
        table.end_read(lease)


def test_a_stale_reference_never_matches_even_for_the_same_blocks() -> None:
    table = _table()
    old, _ = table.grant("a", [1], 0.0)
    new, freed = table.grant("a", [1], 1.0)
    assert freed == [1]
    assert old.nonce != new.nonce
    for call in (table.begin_read, table.renew):
        with pytest.raises(KvUnavailable, match="earlier"):
            call("a", old.nonce, 2.0)
    assert table.release("a", old.nonce) == []
    assert table.begin_read("a", new.nonce, 2.0) is new


def test_expired_but_not_swept_is_expired() -> None:
    table = _table(30)
    lease, _ = table.grant("a", [1], 0.0)
    with pytest.raises(KvUnavailable, match=r"expired 5\.0 s ago"):
        table.begin_read("a", lease.nonce, 35.0)
    assert table.expire(35.0) == [1]


def test_nonces_are_unguessable_by_default() -> None:
    table = _table()
    nonces = {table.grant("a", [], 0.0)[0].nonce for _ in range(100)}
    assert len(nonces) == 100
    assert all(len(nonce) == 32 for nonce in nonces)


class Leases(RuleBasedStateMachine):
    """The table beside a model that says for each block who holds it and how many read it."""

    reads = Bundle("reads")
    leases = Bundle("leases")
    ids = st.sampled_from("abc")
    seconds = st.floats(0, 40)

    def __init__(self) -> None:
        super().__init__()
        nonces = map(str, itertools.count())
        self.table = LeaseTable(lease_seconds=10, ttl_seconds=25, new_nonce=lambda: next(nonces))
        self.now = 0.0
        self.fresh = itertools.count()
        self.owned: dict[int, Lease] = {}  # blocks not given back
        self.readers: dict[str, int] = {}  # by nonce
        self.current: dict[str, Lease] = {}  # by request id: as the model sees it
        self.deadline: dict[str, float] = {}  # by nonce

    def take_back(self, freed: list[int], ended: list[Lease]) -> None:
        """Check that exactly the blocks of ended leases that nobody reads came back."""
        expected = [b for lease in ended for b in lease.blocks if not self.readers[lease.nonce]]
        assert sorted(freed) == sorted(expected)
        for block in freed:
            del self.owned[block]

    @rule(target=leases, request_id=ids, count=st.integers(0, 3))
    def grant(self, request_id: str, count: int) -> Lease:
        blocks = list(itertools.islice(self.fresh, count))
        lease, freed = self.table.grant(request_id, blocks, self.now)
        old = self.current.pop(request_id, None)
        self.take_back(freed, [old] if old else [])
        self.owned |= dict.fromkeys(blocks, lease)
        self.readers[lease.nonce] = 0
        self.current[request_id] = lease
        self.deadline[lease.nonce] = self.now + 10
        return lease

    @rule(lease=leases, with_nonce=st.booleans())
    def release(self, lease: Lease, with_nonce: bool) -> None:
        current = self.current.get(lease.request_id)
        hit = current is not None and (not with_nonce or current is lease)
        freed = self.table.release(lease.request_id, lease.nonce if with_nonce else None)
        self.take_back(freed, [self.current.pop(lease.request_id)] if hit else [])

    @rule(lease=leases)
    def renew(self, lease: Lease) -> None:
        if self.is_valid(lease):
            end = self.table.renew(lease.request_id, lease.nonce, self.now)
            assert end == max(self.deadline[lease.nonce], min(self.now + 10, lease.granted_at + 25))
            self.deadline[lease.nonce] = end
        else:
            with pytest.raises(KvUnavailable):
                self.table.renew(lease.request_id, lease.nonce, self.now)

    @rule(target=reads, lease=leases)
    def begin_read(self, lease: Lease) -> Lease | None:
        if not self.is_valid(lease):
            with pytest.raises(KvUnavailable):
                self.table.begin_read(lease.request_id, lease.nonce, self.now)
            return None
        assert self.table.begin_read(lease.request_id, lease.nonce, self.now) is lease
        self.readers[lease.nonce] += 1
        return lease

    @rule(lease=consumes(reads))
    def end_read(self, lease: Lease | None) -> None:
        if lease is not None:
            self.readers[lease.nonce] -= 1
            over = self.current.get(lease.request_id) is not lease
            self.take_back(self.table.end_read(lease), [lease] if over else [])

    @rule(seconds=seconds)
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        gone = [lease for lease in self.current.values() if self.now >= self.deadline[lease.nonce]]
        for lease in gone:
            del self.current[lease.request_id]
        self.take_back(self.table.expire(self.now), gone)

    def is_valid(self, lease: Lease) -> bool:
        """Open by the model."""
        return self.current.get(lease.request_id) is lease and self.now < self.deadline[lease.nonce]

    @invariant()
    def counts_agree(self) -> None:
        assert self.table.blocks_held == len(self.owned)
        assert len(self.table) == len(self.current)

    def teardown(self) -> None:
        self.now += 1000
        self.expire()
        for nonce, readers in self.readers.items():
            lease = next((lease for lease in self.owned.values() if lease.nonce == nonce), None)
            for _ in range(readers if lease else 0):
                assert lease is not None
                self.end_read(lease)
        assert not self.owned
        assert self.table.blocks_held == 0


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
