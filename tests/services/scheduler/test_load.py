"""A worker's load: reported, placed, released, and what a stale heartbeat may not undo."""

from services.scheduler.load import PLACED_SECONDS, RELEASED_SECONDS, Need, Worker

NEED = Need(blocks=10, tokens=500)


def test_a_placement_counts_until_it_is_reported_and_then_once(beat):
    worker = Worker(beat("w", "decode"), 0.0)
    worker.take("r1", NEED, 0.1)
    assert worker.view[:3] == (1, 4, 90)
    worker.observe(beat("w", "decode", 2, active=["r1"], kv_blocks_free=90), 0.2)
    assert worker.view[:3] == (1, 4, 90)


def test_blocks_that_a_worker_will_still_reserve_are_not_free(beat):
    worker = Worker(beat("w", "decode"), 0.0)
    worker.take("r1", NEED, 0.1)
    worker.observe(beat("w", "decode", 2, active=["r1"], kv_blocks_free=98), 0.2)
    assert worker.view.kv_blocks_free == 90


def test_a_placement_that_is_never_taken_up_stops_counting(beat):
    worker = Worker(beat("w", "decode"), 0.0)
    worker.take("r1", NEED, 0.0)
    assert worker.expire(PLACED_SECONDS) == []
    assert worker.expire(PLACED_SECONDS + 0.1) == ["r1"]
    assert worker.view[:3] == (0, 4, 100)


def test_a_request_that_the_worker_reported_and_reports_no_more_is_gone(beat):
    worker = Worker(beat("w", "decode"), 0.0)
    worker.take("r1", NEED, 0.0)
    worker.observe(beat("w", "decode", 2, active=["r1"]), 0.5)
    assert worker.observe(beat("w", "decode", 3), 1.0) == ["r1"]
    assert worker.view.requests == 0


def test_a_stale_heartbeat_does_not_undo_a_release(beat):
    worker = Worker(beat("w", "decode", active=["r1", "other"], kv_blocks_free=80), 0.0)
    worker.take("r1", NEED, 0.0)
    assert worker.release("r1", 0.1)
    assert worker.view[:3] == (1, 4, 90)
    worker.observe(beat("w", "decode", 2, active=["r1", "other"], kv_blocks_free=80), 0.2)
    assert worker.view[:3] == (1, 4, 90)
    worker.observe(beat("w", "decode", 3, active=["other"], kv_blocks_free=90), 0.7)
    assert worker.view[:3] == (1, 4, 90)


def test_a_prefill_worker_keeps_the_blocks_until_it_says_otherwise(beat):
    worker = Worker(beat("w", "prefill", active=["a"], kv_blocks_free=90), 0.0)
    worker.take("a", NEED, 0.0)
    worker.take("b", NEED, 0.0)
    assert worker.view[:3] == (2, 4, 80)
    worker.release("a", 0.1)
    worker.release("b", 0.1)
    assert worker.view[:3] == (0, 4, 80)  # both are under lease
    worker.observe(beat("w", "prefill", 2, kv_blocks_free=100), 0.5)
    assert worker.view[:3] == (0, 4, 100)


def test_a_worker_that_insists_is_believed(beat):
    worker = Worker(beat("w", "decode", active=["r1"]), 0.0)
    worker.release("r1", 0.0)
    worker.observe(beat("w", "decode", 2, active=["r1"]), RELEASED_SECONDS + 0.1)
    assert worker.view.requests == 1


def test_release_is_idempotent_and_ignores_strangers(beat):
    worker = Worker(beat("w", "decode"), 0.0)
    worker.take("r1", NEED, 0.0)
    assert worker.release("r1", 0.1)
    assert not worker.release("r1", 0.2)
    assert not worker.release("r2", 0.2)
    assert worker.view[:3] == (0, 4, 100)


def test_the_same_request_may_come_back_after_its_release(beat):
    worker = Worker(beat("w", "decode", active=["r1"]), 0.0)
    worker.release("r1", 0.1)
    worker.take("r1", NEED, 0.2)
    assert worker.view.requests == 1


def test_queued_tokens_include_what_was_just_placed_and_not_what_has_ended(beat):
    worker = Worker(beat("w", "prefill", active=["a", "b"], queued_tokens=1000), 0.0)
    worker.take("c", NEED, 0.0)
    assert worker.view.queued_tokens == 1500
    worker.release("a", 0.1)
    assert worker.view.queued_tokens == 1000


def test_a_batch_is_filled_a_little_ahead_where_the_worker_lets_requests_wait(beat):
    assert Worker(beat("w", "decode", max_running=32, max_waiting=64), 0.0).slots == 36
    assert Worker(beat("w", "decode", max_running=32, max_waiting=0), 0.0).slots == 32
    assert Worker(beat("w", "decode", max_running=4, max_waiting=64), 0.0).slots == 4


def test_needs_are_whole_blocks_of_what_each_phase_keeps(beat, ask):
    request = ask("r", prompt_tokens=128, max_tokens=1)
    assert Worker(beat("d", "decode"), 0.0).need(request).blocks == 3
    assert Worker(beat("p", "prefill"), 0.0).need(ask("r", prompt_tokens=127, max_tokens=500)).blocks == 2


def test_what_could_never_fit(beat, ask):
    worker = Worker(beat("d", "decode", kv_blocks=4, max_model_len=200), 0.0)
    assert worker.could_hold(ask("r", prompt_tokens=100, max_tokens=100))
    assert not worker.could_hold(ask("r", prompt_tokens=100, max_tokens=101))
    small = Worker(beat("d", "decode", kv_blocks=2), 0.0)
    assert not small.could_hold(ask("r", prompt_tokens=128, max_tokens=1))
