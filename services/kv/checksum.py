"""Checksums of KV bytes and of token ids: XXH3, 64 bits, sixteen hexadecimal digits.

They tell altered or exchanged content, not an attacker's. xxhash lets go of the GIL for buffers of this size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from services.kv.pool import Bytes, runs


def kv_checksum(pool: Bytes, block_ids: Sequence[int]) -> str:
    """Of the named blocks' bytes, in the order named.

    Whole blocks: in a block the tokens lie apart from each other (a run for each layer, keys and values), so what is
    left behind the last token is hashed as well. It is copied too, and does not change while the lease lives.
    """
    check_block_ids(block_ids, len(pool))
    digest = xxhash.xxh3_64()
    for (first,), length in runs(block_ids):
        digest.update(pool[first : first + length].data)
    return digest.hexdigest()


def tokens_checksum(token_ids: Sequence[int]) -> str:
    """Of token ids, each as a little-endian 32-bit number."""
    return xxhash.xxh3_64_hexdigest(np.asarray(token_ids, dtype="<u4").tobytes())


def check_block_ids(block_ids: Sequence[int], num_blocks: int) -> None:
    """Raise ValueError where an id is outside the pool (a negative one would silently count from the end)."""
    if block_ids and not 0 <= min(block_ids) <= max(block_ids) < num_blocks:
        raise ValueError(f"block ids {min(block_ids)}..{max(block_ids)} in a pool of {num_blocks}")
