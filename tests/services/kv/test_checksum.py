"""Checksums see every byte and the order of blocks."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from services.kv.checksum import kv_checksum, tokens_checksum

POOL = np.random.default_rng(5).integers(0, 256, (6, 96), np.uint8)


@given(st.lists(st.integers(0, 5)))
def test_it_is_that_of_the_bytes_in_order(blocks: list[int]) -> None:
    assert kv_checksum(POOL, blocks) == xxhash.xxh3_64_hexdigest(b"".join(POOL[b].tobytes() for b in blocks))


@given(st.integers(0, 1), st.integers(0, 95), st.integers(1, 255))
def test_any_changed_byte_changes_it(block: int, offset: int, mask: int) -> None:
    altered = POOL.copy()
    altered[[2, 4][block], offset] ^= mask
    assert kv_checksum(altered, [2, 4]) != kv_checksum(POOL, [2, 4])
    assert kv_checksum(altered, [0, 1, 3, 5]) == kv_checksum(POOL, [0, 1, 3, 5])


@pytest.mark.parametrize("blocks", [[-1], [6], [0, 1, 6], [-6, 2]])
def test_a_block_outside_the_pool_is_refused(blocks: list[int]) -> None:
    with pytest.raises(ValueError, match="pool of 6"):
        kv_checksum(POOL, blocks)


def test_tokens_are_little_endian_32_bit_numbers() -> None:
    assert tokens_checksum([1, 2, 0x01020304]) == xxhash.xxh3_64_hexdigest(bytes([1, 0, 0, 0, 2, 0, 0, 0, 4, 3, 2, 1]))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20), st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_other_tokens_other_checksum(one: list[int], other: list[int]) -> None:
    assert (tokens_checksum(one) == tokens_checksum(other)) == (one == other)
