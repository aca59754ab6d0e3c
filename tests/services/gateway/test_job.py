"""Request ids and trace contexts: the client's where they are well formed."""

from __future__ import annotations

import pytest

from services.common.errors import InvalidRequest
from services.gateway import job

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


def test_request_ids() -> None:
    assert job.request_id("my.request:1_2-3") == "my.request:1_2-3"
    assert job.request_id(None) != job.request_id(None)
    for wrong in ("", "a b", "x" * 101, "ä", "a\n"):
        with pytest.raises(InvalidRequest, match="X-Request-Id"):
            job.request_id(wrong)


def test_internal_ids_are_unique() -> None:
    ids = job.InternalIds(remembered=2)
    first, again, third = ids.take("a"), ids.take("a"), ids.take("a")
    assert first == "a"
    assert len({first, again, third}) == 3
    assert again.startswith("a.")
    assert [ids.take("b"), ids.take("c"), ids.take("a")] == ["b", "c", "a"]


def test_trace_contexts() -> None:
    assert job.traceparent(TRACE) == TRACE
    for wrong in (None, "", TRACE[:-1], TRACE.upper(), f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'0' * 16}-01"):
        made = job.traceparent(wrong)
        assert made != wrong
        assert job.traceparent(made) == made


def test_seeds_are_of_64_bits() -> None:
    seeds = {job.draw_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
