"""Who is known: restarts, ghosts, silence, and workers that could never be paired."""

import pytest

from services.common.errors import Incompatible, InvalidRequest
from services.scheduler.registry import Registry


@pytest.fixture
def registry():
    return Registry(heartbeat_timeout=2.5, absent_grace=30.0)


def test_a_new_engine_id_replaces_the_old_one_at_once(registry, beat):
    old, _ = registry.observe(beat("w", "decode"), 0.0)
    old.placed["r1"] = object()
    new, ended = registry.observe(beat("w", "decode", 1, engine_id="w/boot-2"), 0.1)
    assert list(registry.workers()) == [new]
    assert list(registry.role("decode", "smol").values()) == [new]
    assert ended == [("r1", old)]


def test_the_old_engine_is_a_ghost_from_then_on(registry, beat):
    registry.observe(beat("w", "decode"), 0.0)
    registry.observe(beat("w", "decode", 1, engine_id="w/boot-2"), 0.1)
    with pytest.raises(Incompatible, match="w is now engine w/boot-2 at http://w, so engine w/boot-1"):
        registry.observe(beat("w", "decode", 2), 0.2)
    assert [w.beat.engine_id for w in registry.workers()] == ["w/boot-2"]


def test_a_ghost_that_is_the_only_one_left_is_taken_back(registry, beat):
    registry.observe(beat("w", "decode", 1, engine_id="w/boot-2"), 0.0)
    registry.observe(beat("w", "decode", 9), 0.1)  # sent before the restart, and late
    with pytest.raises(Incompatible):
        registry.observe(beat("w", "decode", 2, engine_id="w/boot-2"), 0.2)
    registry.observe(beat("w", "decode", 3, engine_id="w/boot-2"), 2.7)
    assert [w.beat.engine_id for w in registry.workers()] == ["w/boot-2"]


def test_a_heartbeat_that_was_overtaken_is_ignored(registry, beat):
    worker, _ = registry.observe(beat("w", "decode", 5, active=["r1"]), 0.0)
    registry.observe(beat("w", "decode", 4, active=[]), 0.1)
    assert worker.view.requests == 1
    assert worker.beat_at == 0.0


@pytest.mark.parametrize(
    ("field", "value", "said"), [("tp_size", 2, "tp_size 2 and 1"), ("block_size", 16, "block_size 16 and 64")]
)
def test_another_layout_of_the_same_revision_is_refused_by_name(registry, beat, field, value, said):
    registry.observe(beat("prefill-worker-0", "prefill"), 0.0)
    with pytest.raises(Incompatible) as caught:
        registry.observe(beat("decode-worker-0", "decode", **{field: value}), 0.1)
    for part in ("prefill-worker-0", "decode-worker-0", said):
        assert part in caught.value.message
    assert len(list(registry.workers())) == 1


def test_it_is_taken_once_the_others_are_gone(registry, beat):
    registry.observe(beat("prefill-worker-0", "prefill"), 0.0)
    registry.observe(beat("decode-worker-0", "decode", 2, block_size=16), 3.0)
    assert len(list(registry.workers())) == 2


def test_another_revision_or_model_may_have_another_layout(registry, beat):
    registry.observe(beat("a", "decode"), 0.0)
    registry.observe(beat("b", "decode", revision="next", block_size=16), 0.0)
    registry.observe(beat("c", "decode", model="other", tp_size=2), 0.0)
    assert registry.models == {"smol", "other"}


def test_an_engine_keeps_what_it_registered_with(registry, beat):
    registry.observe(beat("w", "decode"), 0.0)
    with pytest.raises(InvalidRequest, match="new engine id"):
        registry.observe(beat("w", "decode", 2, revision="next"), 0.1)


@pytest.mark.parametrize("fields", [{"kv_blocks": 0}, {"max_running": 0}, {"block_size": 0}, {"url": ""}])
def test_nonsense_is_refused(registry, beat, fields):
    with pytest.raises(InvalidRequest):
        registry.observe(beat("w", "decode", **fields), 0.0)


def test_states(registry, beat):
    worker, _ = registry.observe(beat("w", "decode"), 0.0)
    assert registry.state(worker, 2.5) == "live"
    assert registry.state(worker, 2.6) == "absent"
    registry.observe(beat("w", "decode", 2, draining=True), 3.0)
    assert registry.state(worker, 3.0) == "draining"
    assert registry.hoped_for(worker, 29.0)  # it took requests at 0
    assert not registry.hoped_for(worker, 31.0)


def test_the_silent_are_forgotten_with_what_was_placed_on_them(registry, beat):
    worker, _ = registry.observe(beat("w", "decode"), 0.0)
    worker.placed["r1"] = type("Placed", (), {"reported": True})()
    assert registry.expire(30.0) == []
    assert registry.expire(30.1) == [("r1", worker)]
    assert not registry.role("decode", "smol")


def test_traffic_follows_the_smaller_share_of_each_pair(registry, beat):
    for number in range(2):
        registry.observe(beat(f"p{number}", "prefill", revision=("old", "new")[number]), 0.0)
    for number in range(4):
        registry.observe(beat(f"d{number}", "decode", revision=("old", "old", "old", "new")[number]), 0.0)
    registry.observe(beat("p9", "prefill", revision="lonely"), 0.0)
    shares = {revision: share for (revision, _), share in registry.shares("smol", 0.0).items()}
    assert shares == {"old": pytest.approx(1 / 3), "new": pytest.approx(1 / 4)}
