"""No block has two owners and none is lost, whatever the order of calls."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.worker.engine.torch.allocator import BlockAllocator

SIZE = 12


class Allocations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.allocator = BlockAllocator(SIZE)
        self.held: list[list[int]] = []

    def _owned(self) -> list[int]:
        return [block for blocks in self.held for block in blocks]

    @rule(count=st.integers(0, SIZE + 2))
    def allocate(self, count: int) -> None:
        free = self.allocator.num_free
        blocks = self.allocator.allocate(count)
        if blocks is None:
            assert count > free
        else:
            assert len(blocks) == count <= free
            assert not set(blocks) & set(self._owned())
            self.held.append(blocks)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.held:
            blocks = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            cut = data.draw(st.integers(0, len(blocks)))
            self.allocator.free(blocks[:cut])
            self.allocator.free(blocks[cut:])

    @rule(block=st.integers(-1, SIZE))
    def free_what_nobody_owns(self, block: int) -> None:
        if block not in self._owned():
            with pytest.raises(ValueError, match="must be taken"):
                self.allocator.free([*self._owned()[:1], block])

    @invariant()
    def nothing_is_lost(self) -> None:
        owned = self._owned()
        assert len(owned) == len(set(owned))
        assert set(owned) <= set(range(SIZE))
        assert self.allocator.num_free == SIZE - len(owned)


TestAllocations = Allocations.TestCase
TestAllocations.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_block_named_twice_is_refused() -> None:
    allocator = BlockAllocator(2)
    blocks = allocator.allocate(1)
    assert blocks is not None
    with pytest.raises(ValueError, match="named once"):
        allocator.free(blocks * 2)
    assert allocator.num_free == 1
