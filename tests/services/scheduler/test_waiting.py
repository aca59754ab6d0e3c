"""The queue: its bound, its fairness, its speed."""

import pytest

from services.scheduler.load import Worker
from services.scheduler.waiting import STREAM_ROOM, Ticket, WaitQueue


def test_in_order_of_arrival_and_bounded(ask):
    queue = WaitQueue(2)
    tickets = [Ticket(ask(name), 0.0) for name in ("a", "b")]
    for ticket in tickets:
        assert not queue.full_for(ticket.request)
        queue.add(ticket)
    assert list(queue) == tickets
    assert queue.full_for(ask("c"))
    assert not queue.full_for(ask("c", must_wait=True))
    assert STREAM_ROOM > 0


def test_remove_is_idempotent_and_knows_the_ticket(ask):
    queue = WaitQueue(2)
    first, second = Ticket(ask("a"), 0.0), Ticket(ask("a"), 1.0)
    queue.add(second)
    queue.remove(first)
    assert queue.get("a") is second
    queue.remove(second)
    queue.remove(second)
    assert not len(queue)


def test_a_reservation_is_kept_for_its_ticket_until_it_leaves(ask, beat):
    queue = WaitQueue(9)
    patient, later = Ticket(ask("a"), 0.0), Ticket(ask("b"), 0.0)
    full, empty = (Worker(beat(name, "decode", kv_blocks_free=free), 0.0) for name, free in (("x", 1), ("y", 50)))
    queue.add(patient)
    queue.reserve(patient, [full, empty])
    assert queue.open_to(empty, patient)
    assert not queue.open_to(empty, later)
    assert queue.open_to(full, later)
    queue.keep_reservations({full.beat.engine_id})
    assert queue.open_to(empty, later)
    queue.reserve(patient, [empty])
    queue.remove(patient)
    assert queue.open_to(empty, later)


def test_retry_after_follows_the_speed_of_placements(ask):
    queue = WaitQueue(100)
    assert queue.retry_after(0.0) == 1.0
    for number in range(39):
        queue.add(Ticket(ask(str(number)), 0.0))
    for number in range(11):
        queue.note_placed(number * 0.5)  # two a second
    assert queue.retry_after(5.5) == pytest.approx(20.0)
    assert queue.retry_after(3600.0) == 60.0
