"""Who gets into a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.worker.engine.protocol import EngineRequest, Sampling
from services.worker.engine.torch.plan import plan
from services.worker.engine.torch.sequence import Sequence


def _sequence(length: int, computed: int) -> Sequence:
    sequence = Sequence.of(EngineRequest("r", list(range(length)), 4, Sampling(), 0.0))
    sequence.computed = computed
    return sequence


@given(
    lengths=st.lists(st.integers(1, 90).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))), max_size=20),
    budget=st.integers(21, 64),
)
def test_decode_rows_first_then_prompts_in_order(lengths: list[tuple[int, int]], budget: int) -> None:
    running = [_sequence(length, computed) for length, computed in lengths]
    spans = plan(running, budget)
    assert sum(span.count for span in spans) <= budget
    assert all(1 <= span.count <= span.sequence.pending for span in spans)
    chosen = [span.sequence for span in spans]
    assert all(sequence in chosen for sequence in running if sequence.pending == 1)
    prompts = [sequence for sequence in running if sequence.pending > 1]
    started = [sequence for sequence in prompts if sequence in chosen]
    assert started == prompts[: len(started)]
    assert all(span.is_last for span in spans[:-1])
    if prompts:
        assert started
        left_out = len(started) < len(prompts) or not spans[-1].is_last
        assert not left_out or sum(span.count for span in spans) == budget
