"""The directory is bounded in number and in time."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from services.common.wire import KvTransferParams
from services.kv.directory import HandleDirectory


def _handle(nonce: str) -> KvTransferParams:
    return KvTransferParams(nonce=nonce)


def test_put_get_remove() -> None:
    directory = HandleDirectory(max_handles=10, ttl_seconds=60)
    assert directory.get("a", 0.0) is None
    directory.put("a", _handle("1"), 0.0)
    directory.put("a", _handle("2"), 1.0)
    assert directory.get("a", 1.0) == _handle("2")
    assert directory.count(1.0) == 1
    assert directory.remove("a", 1.0)
    assert not directory.remove("a", 1.0)
    assert directory.get("a", 1.0) is None


def test_a_handle_expires_and_a_new_registration_begins_anew() -> None:
    directory = HandleDirectory(max_handles=10, ttl_seconds=60)
    directory.put("a", _handle("1"), 0.0)
    directory.put("b", _handle("1"), 30.0)
    directory.put("a", _handle("2"), 40.0)
    assert directory.get("b", 89.9) is not None
    assert directory.get("b", 90.0) is None
    assert directory.get("a", 99.9) == _handle("2")
    assert not directory.remove("a", 100.0)
    assert directory.count(100.0) == 0


def test_when_full_the_oldest_gives_way() -> None:
    directory = HandleDirectory(max_handles=2, ttl_seconds=60)
    evicted = [directory.put(name, _handle(name), now) for now, name in enumerate("abac")]
    assert evicted == [0, 0, 0, 1]
    assert [directory.get(name, 4.0) is not None for name in "abc"] == [True, False, True]


@given(st.lists(st.tuples(st.sampled_from(["put", "get", "remove"]), st.sampled_from("abcde"), st.integers(0, 40))))
def test_it_agrees_with_a_model(calls: list[tuple[str, str, int]]) -> None:
    directory = HandleDirectory(max_handles=3, ttl_seconds=60)
    model: OrderedDict[str, tuple[str, int]] = OrderedDict()
    now = 0
    for number, (call, name, step) in enumerate(calls):
        now += step
        for gone in [key for key, (_, until) in model.items() if now >= until]:
            del model[gone]
        if call == "put":
            model.pop(name, None)
            expected = [model.popitem(last=False)] if len(model) == 3 else []
            assert directory.put(name, _handle(str(number)), now) == len(expected)
            model[name] = str(number), now + 60
        elif call == "get":
            found = directory.get(name, now)
            assert (found.nonce if found else None) == model.get(name, (None,))[0]
        else:
            assert directory.remove(name, now) == (model.pop(name, None) is not None)
        assert directory.count(now) == len(model)
