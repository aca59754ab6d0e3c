"""Decisions of one replica: who gets a worker, who waits, and who is told why not."""

from collections import Counter

import pytest

from services.common import errors
from services.common.wire import Placement
from services.scheduler.core import EXCLUDED_SECONDS, Limits, Scheduler
from services.scheduler.waiting import MAX_OVERTAKEN

GRACE, SILENCE = 30.0, 2.5
WARM = 10.0  # the scheduler starts at 0; by then it has heard of every worker there is


@pytest.fixture
def make(beat):
    def build(*workers, queue=256, **fields):
        scheduler = Scheduler(Limits(queue, SILENCE, GRACE), 0.0, seed=1)
        for worker in workers:
            scheduler.heartbeat(beat(worker, worker.split("-")[0], **fields), WARM)
        return scheduler

    return build


def code(ticket):
    """What became of a ticket: a worker's id, an error's code, or None while it waits."""
    outcome = ticket.outcome
    return outcome.worker_id if isinstance(outcome, Placement) else getattr(outcome, "code", None)


def test_a_placement_says_all_that_the_gateway_needs(make, ask, beat):
    scheduler = make("decode-0", hands_over_first_token=False)
    found = scheduler.place(ask("r"), WARM).outcome
    layout = beat("decode-0", "decode").layout.fingerprint
    assert found == Placement("decode-0", "decode-0/boot-1", "http://decode-0", "main", layout, False)


def test_load_spreads_and_fills_every_worker(make, ask):
    scheduler = make("decode-0", "decode-1")
    counts = Counter(code(scheduler.place(ask(f"r{n}"), WARM)) for n in range(8))
    assert counts == {"decode-0": 4, "decode-1": 4}


def test_replicas_of_another_seed_draw_another_lot(ask, beat):
    first = set()
    for seed in range(20):
        scheduler = Scheduler(Limits(), 0.0, seed)
        for name in ("decode-0", "decode-1"):
            scheduler.heartbeat(beat(name, "decode"), 0.0)
        first.add(code(scheduler.place(ask("r"), 0.0)))
    assert first == {"decode-0", "decode-1"}


def test_waiters_are_served_in_order_as_places_are_released(make, ask):
    scheduler = make("decode-0", max_running=1)
    scheduler.place(ask("a"), WARM)
    b, c = (scheduler.place(ask(name), WARM) for name in "bc")
    assert (code(b), code(c)) == (None, None)
    scheduler.release("a", "decode", WARM)
    assert (code(b), code(c)) == ("decode-0", None)
    scheduler.release("b", "decode", WARM)
    assert code(c) == "decode-0"


def test_a_new_worker_and_a_heartbeat_with_room_serve_waiters(make, ask, beat):
    scheduler = make("decode-0", max_running=1, active=["foreign"])
    a, b = (scheduler.place(ask(name), WARM) for name in "ab")
    scheduler.heartbeat(beat("decode-1", "decode", max_running=1), WARM + 0.1)
    assert (code(a), code(b)) == ("decode-1", None)
    scheduler.heartbeat(beat("decode-0", "decode", 2, max_running=1), WARM + 0.2)
    assert code(b) == "decode-0"


def test_kv_blocks_bound_decode(make, ask):
    scheduler = make("decode-0", kv_blocks=10)
    a, b = (scheduler.place(ask(name, prompt_tokens=300, max_tokens=100), WARM) for name in "ab")
    assert (code(a), code(b)) == ("decode-0", None)


# -- saturated and absent are different (CASES 17)
def test_a_full_queue_is_saturated_and_names_a_time(make, ask):
    scheduler = make("decode-0", queue=1, max_running=1)
    scheduler.place(ask("a"), WARM)
    scheduler.place(ask("b"), WARM)
    outcome = scheduler.place(ask("c"), WARM).outcome
    assert isinstance(outcome, errors.Saturated)
    assert outcome.message == errors.BUSY
    assert outcome.retry_after >= 1


def test_without_a_worker_it_is_absent_at_once_even_if_the_queue_is_full(make, ask):
    scheduler = make("prefill-0", "decode-0", queue=0)
    assert code(scheduler.place(ask("r"), WARM + SILENCE + GRACE + 1)) == "no_healthy_worker"


def test_a_replica_that_has_just_started_waits_for_heartbeats(ask, beat):
    scheduler = Scheduler(Limits(9, SILENCE, GRACE), 0.0)
    served, unserved = scheduler.place(ask("a"), 0.1), scheduler.place(ask("b", model="nobody's"), 0.1)
    scheduler.heartbeat(beat("decode-0", "decode"), 0.5)
    assert code(served) == "decode-0"
    assert code(unserved) is None
    scheduler.tick(SILENCE)
    assert code(unserved) == "model_not_found"


def test_a_phase_that_vanished_is_waited_for_during_the_grace(make, ask, beat):
    scheduler = make("decode-0")
    early, late = WARM + SILENCE + 1, WARM + GRACE + 0.1
    ticket, stream = scheduler.place(ask("a", timeout=99), early), scheduler.place(ask("b", must_wait=True), early)
    scheduler.tick(early + 0.1)
    assert (code(ticket), code(stream)) == (None, None)
    scheduler.tick(late)
    assert (code(ticket), code(stream)) == ("no_healthy_worker", "deadline_exceeded")


def test_a_stream_that_has_begun_waits_for_as_long_as_it_may(make, ask, beat):
    scheduler = make("decode-0")
    late = WARM + GRACE + 1
    stream = scheduler.place(ask("b", must_wait=True), late)
    scheduler.tick(late + 19)
    assert code(stream) is None
    scheduler.heartbeat(beat("decode-0", "decode", engine_id="decode-0/boot-2"), late + 19.5)
    assert stream.outcome.engine_id == "decode-0/boot-2"


def test_the_deadline_ends_every_wait(make, ask):
    scheduler = make("decode-0", max_running=1, active=["foreign"])
    ticket = scheduler.place(ask("a", timeout=5.0), WARM)
    scheduler.tick(WARM + 4.9)
    assert code(ticket) is None
    scheduler.tick(WARM + 5.0)
    assert code(ticket) == "deadline_exceeded"
    assert code(scheduler.place(ask("b", timeout=0.0), WARM)) == "deadline_exceeded"


def test_what_no_worker_could_hold_is_told_before_prefill_begins(make, ask, beat):
    scheduler = make("prefill-0", kv_blocks=100)
    scheduler.heartbeat(beat("decode-0", "decode", kv_blocks=10), WARM)
    too_long = {"prompt_tokens": 600, "max_tokens": 100}
    assert code(scheduler.place(ask("a", "prefill", **too_long), WARM)) == "context_length_exceeded"
    assert code(scheduler.place(ask("a", "decode", **too_long), WARM)) == "context_length_exceeded"
    assert code(scheduler.place(ask("b", "prefill", prompt_tokens=600, max_tokens=1), WARM)) == "prefill-0"


@pytest.mark.parametrize("wrong", [{"prompt_tokens": 0}, {"max_tokens": -1}])
def test_nonsense_is_refused(make, ask, wrong):
    assert code(make("decode-0").place(ask("r", **wrong), WARM)) == "invalid_request"


# -- who may be chosen
def test_only_equal_models_revisions_and_layouts_pair(make, ask, beat):  # CASES 19
    scheduler = make("decode-0")
    scheduler.heartbeat(beat("decode-1", "decode", revision="next", block_size=16), WARM)
    scheduler.heartbeat(beat("decode-2", "decode", model="other"), WARM)
    for number, (worker_id, fields) in enumerate({"decode-0": {}, "decode-1": {"block_size": 16}}.items()):
        revision = ("main", "next")[number]
        layout = beat(worker_id, "decode", **fields).layout.fingerprint
        for n in range(4):
            ticket = scheduler.place(ask(f"{worker_id}{n}", revision=revision, layout=layout), WARM)
            assert code(ticket) == worker_id
    strange = ask("x", revision="main", layout="0123456789abcdef")
    assert code(scheduler.place(strange, WARM)) == "no_healthy_worker"


def test_prefill_needs_a_decode_worker_to_hand_over_to(make, ask, beat):
    scheduler = make("prefill-0")
    assert code(scheduler.place(ask("a", "prefill"), WARM)) == "no_healthy_worker"
    assert code(scheduler.place(ask("b", "prefill", max_tokens=1), WARM)) == "prefill-0"
    scheduler.heartbeat(beat("decode-0", "decode"), WARM)
    assert code(scheduler.place(ask("c", "prefill"), WARM)) == "prefill-0"


def test_during_a_rollout_traffic_follows_the_smaller_share(make, ask, beat):  # CASES 28
    scheduler = make()
    for number, revision in enumerate(("old", "new")):
        scheduler.heartbeat(beat(f"prefill-{number}", "prefill", revision=revision, max_running=64), WARM)
    for number in range(4):
        revision = ("old", "old", "old", "new")[number]
        scheduler.heartbeat(beat(f"decode-{number}", "decode", revision=revision, max_running=64, kv_blocks=999), WARM)
    chosen = Counter()
    for number in range(70):
        placed = scheduler.place(ask(f"r{number}", "prefill"), WARM).outcome
        scheduler.release(f"r{number}", "prefill", WARM)
        after = scheduler.place(ask(f"r{number}", revision=placed.revision, layout=placed.layout), WARM).outcome
        assert after.revision == placed.revision
        chosen[placed.revision] += 1
    # The old pair has 1/2 of prefill and 3/4 of decode, the new one 1/2 and 1/4: two to one.
    assert abs(chosen["old"] - 2 * chosen["new"]) <= 2


def test_a_heartbeat_is_told_whether_somebody_could_be_paired_with_its_sender(make, beat):
    scheduler = make("decode-old", revision="old")

    def told(name, sequence, revision, now, **fields):
        return scheduler.heartbeat(beat(name, name.split("-")[0], sequence, revision=revision, **fields), now)

    assert not told("prefill-new", 1, "new", WARM)
    assert not told("prefill-another", 1, "new", WARM), "one of the same phase is no partner"
    assert told("decode-new", 1, "new", WARM)
    assert told("prefill-new", 2, "new", WARM)
    told("decode-new", 2, "new", WARM, draining=True)
    assert not told("prefill-new", 3, "new", WARM)
    told("decode-new", 3, "new", WARM)
    assert not told("prefill-new", 4, "new", WARM + SILENCE + 1), "it has fallen silent"


def two_revisions(make, beat):
    """Old and new side by side, each with both phases; gives the scheduler and heartbeats of the old decode worker."""
    scheduler = make("prefill-old", "decode-old", revision="old")
    for name in ("prefill-new", "decode-new"):
        scheduler.heartbeat(beat(name, name.split("-")[0], revision="new"), WARM)

    def old(sequence, now, **fields):
        scheduler.heartbeat(beat("decode-old", "decode", sequence, revision="old", **fields), now)

    return scheduler, old


@pytest.mark.parametrize("must_wait", [False, True])
def test_kv_whose_decode_workers_drain_is_computed_anew(make, ask, beat, must_wait):  # CASES 28
    """At once, and a request that waits already too: nothing of that pair will decode again."""
    scheduler, old = two_revisions(make, beat)
    scheduler.place(ask("a", revision="old"), WARM)
    old(2, WARM, kv_blocks_free=0, active=["a"])
    paired = {"revision": "old", "must_wait": must_wait}
    waiting = scheduler.place(ask("b", **paired), WARM)
    assert code(waiting) is None, "it is full, not gone"
    old(3, WARM + 0.1, active=["a"], draining=True)
    scheduler.tick(WARM + 0.1)
    late = scheduler.place(ask("c", **paired), WARM + 0.1)
    assert (code(waiting), code(late)) == ("incompatible", "incompatible")
    assert "no decode worker of revision old" in late.outcome.message
    assert "only of revision new" in late.outcome.message
    again = [code(scheduler.place(ask(f"p{n}", "prefill"), WARM + 0.1)) for n in range(4)]
    assert again == ["prefill-new"] * 4, "and not on the revision that nobody would take over from"


def test_kv_whose_decode_workers_vanished_is_computed_anew_after_the_grace(make, ask, beat):
    scheduler, _ = two_revisions(make, beat)
    waiting = None
    for seconds in range(1, 40):
        now = WARM + seconds
        for name in ("prefill-old", "prefill-new", "decode-new"):
            phase, _, revision = name.partition("-")
            scheduler.heartbeat(beat(name, phase, 1 + seconds, revision=revision), now)
        scheduler.tick(now)
        if seconds == 4:
            waiting = scheduler.place(ask("a", revision="old", must_wait=True, timeout=300.0), now)
        if waiting is not None:
            assert code(waiting) == (None if seconds <= GRACE else "incompatible"), "it may come back until then"


def test_kv_of_a_pair_alone_in_the_world_waits(make, ask, beat):
    """Another pair that cannot serve both phases is no way out."""
    scheduler = make("prefill-old", "decode-old", revision="old")
    scheduler.heartbeat(beat("decode-new", "decode", revision="new"), WARM)
    scheduler.heartbeat(beat("decode-old", "decode", 2, revision="old", draining=True), WARM)
    for must_wait in (False, True):
        waiting = scheduler.place(ask(f"a{must_wait}", revision="old", must_wait=must_wait), WARM)
        scheduler.tick(WARM + 0.1)
        assert code(waiting) is None
    assert code(scheduler.place(ask("p", "prefill"), WARM)) == "prefill-old", "its decode worker may be replaced"


def test_a_replica_that_has_just_started_calls_no_pair_gone(ask, beat):
    scheduler = Scheduler(Limits(256, SILENCE, GRACE), 0.0, seed=1)
    for name in ("prefill-new", "decode-new"):
        scheduler.heartbeat(beat(name, name.split("-")[0], revision="new"), 0.1)
    waiting = scheduler.place(ask("a", revision="old"), 0.2)
    scheduler.tick(0.3)
    assert code(waiting) is None
    scheduler.heartbeat(beat("decode-old", "decode", revision="old"), 0.4)
    assert code(waiting) == "decode-old"


def test_a_draining_worker_gets_nothing_new(make, ask, beat):
    scheduler = make("decode-0", "decode-1")
    scheduler.heartbeat(beat("decode-0", "decode", 2, draining=True), WARM)
    assert {code(scheduler.place(ask(f"r{n}"), WARM)) for n in range(4)} == {"decode-1"}


def test_a_restarted_worker_takes_over_from_its_old_engine(make, ask, beat):  # CASES 13
    scheduler = make("decode-0", max_running=1)
    scheduler.place(ask("a"), WARM)
    waiting = scheduler.place(ask("b"), WARM)
    scheduler.heartbeat(beat("decode-0", "decode", max_running=1, engine_id="decode-0/boot-2"), WARM + 1)
    assert waiting.outcome.engine_id == "decode-0/boot-2"
    assert scheduler.held() == 1
    assert not scheduler.release("a", "decode", WARM + 1)


def test_an_excluded_engine_is_tried_again_if_it_lives_on_and_is_the_only_one(make, ask, beat):
    scheduler = make("decode-0")
    ticket = scheduler.place(ask("r", exclude=["decode-0/boot-1"]), WARM)
    scheduler.heartbeat(beat("decode-0", "decode", 2), WARM + EXCLUDED_SECONDS / 2)
    assert code(ticket) is None
    scheduler.heartbeat(beat("decode-0", "decode", 3), WARM + EXCLUDED_SECONDS)
    assert code(ticket) == "decode-0"


def test_an_excluded_engine_is_not_tried_while_another_lives(make, ask, beat):
    scheduler = make("decode-0", "decode-1", max_running=1)
    scheduler.place(ask("a", exclude=["decode-0/boot-1"]), WARM)
    ticket = scheduler.place(ask("b", exclude=["decode-0/boot-1"]), WARM)
    scheduler.heartbeat(beat("decode-0", "decode", 2, max_running=1), WARM + 2)
    scheduler.tick(WARM + 2)
    assert code(ticket) is None


# -- fairness
def test_a_small_request_passes_a_big_one_but_not_for_ever(make, ask):
    scheduler = make("decode-0", max_running=64, kv_blocks=20)
    for n in range(4):
        scheduler.place(ask(f"first{n}", prompt_tokens=255, max_tokens=1), WARM)  # 4 blocks each
    big = scheduler.place(ask("big", prompt_tokens=639, max_tokens=1), WARM)  # 10 blocks
    small = []
    for n in range(MAX_OVERTAKEN + 5):
        small.append(scheduler.place(ask(f"small{n}", prompt_tokens=255, max_tokens=1), WARM))
        scheduler.release(f"small{n}", "decode", WARM)
    passed = [ticket for ticket in small if code(ticket)]
    assert len(passed) == MAX_OVERTAKEN
    assert code(big) is None
    for n in range(4):
        scheduler.release(f"first{n}", "decode", WARM)
    assert code(big) == "decode-0"


def test_who_could_not_use_a_place_is_not_overtaken_by_its_being_given(make, ask):
    scheduler = make("decode-0", "decode-1", max_running=1)
    scheduler.place(ask("a", exclude=["decode-0/boot-1"]), WARM)  # takes decode-1
    picky = scheduler.place(ask("b", exclude=["decode-0/boot-1"]), WARM)
    for n in range(MAX_OVERTAKEN + 5):
        assert code(scheduler.place(ask(f"c{n}"), WARM)) == "decode-0"
        scheduler.release(f"c{n}", "decode", WARM)
    assert picky.overtaken == 0


# -- leaving
def test_a_caller_that_goes_away_leaves_the_queue(make, ask):
    scheduler = make("decode-0", max_running=1)
    scheduler.place(ask("a"), WARM)
    gone, next_one = scheduler.place(ask("b"), WARM), scheduler.place(ask("c"), WARM)
    scheduler.cancel(gone, WARM)
    scheduler.cancel(gone, WARM)
    scheduler.release("a", "decode", WARM)
    assert (code(gone), code(next_one)) == (None, "decode-0")


def test_a_placement_whose_caller_went_away_is_taken_back(make, ask):
    scheduler = make("decode-0", max_running=1)
    gone, next_one = scheduler.place(ask("a"), WARM), scheduler.place(ask("b"), WARM)
    scheduler.cancel(gone, WARM)
    assert code(next_one) == "decode-0"
    assert scheduler.held() == 1


def test_a_request_that_comes_again_takes_its_own_place(make, ask):
    scheduler = make("decode-0", max_running=1)
    first = scheduler.place(ask("a"), WARM)
    again = scheduler.place(ask("a"), WARM)
    assert (code(first), code(again), scheduler.held()) == ("decode-0", "decode-0", 1)
    scheduler.cancel(first, WARM)  # the one before has no say any more
    assert scheduler.held() == 1
    waiting, instead = scheduler.place(ask("b"), WARM), scheduler.place(ask("b"), WARM)
    assert (code(waiting), code(instead)) == ("invalid_request", None)


def test_any_replica_may_be_told_of_a_release(make, ask, beat):
    scheduler = make("decode-0", max_running=1, active=["elsewhere"])
    waiting = scheduler.place(ask("a"), WARM)
    assert scheduler.release("elsewhere", "decode", WARM)
    assert code(waiting) == "decode-0"
    assert not scheduler.release("elsewhere", "decode", WARM)


def test_closing_sends_everybody_to_another_replica(make, ask):
    scheduler = make("decode-0", max_running=1)
    scheduler.place(ask("a"), WARM)
    waiting = scheduler.place(ask("b"), WARM)
    scheduler.close()
    assert (code(waiting), code(scheduler.place(ask("c"), WARM))) == ("draining", "draining")
    assert scheduler.release("a", "decode", WARM)
    assert scheduler.held() == 0
