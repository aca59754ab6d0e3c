"""A handle is accepted for the very prompt, model and layout that it was made for, while it lives."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.common.errors import DiphaseError, Incompatible, KvUnavailable
from services.common.wire import KvTransferParams, Layout
from services.kv.handle import make_handle, verify
from services.kv.lease import LeaseTable

LAYOUT = Layout("float32", 64, 30, 3, 64)
PROMPT = list(range(100, 200))


def _handle() -> KvTransferParams:
    table = LeaseTable(lease_seconds=30, ttl_seconds=300)
    lease, _ = table.grant("req-1", [7, 9], 1000.0, num_tokens=100, kv_checksum="c" * 16)
    return make_handle(
        lease,
        engine_id="e",
        model="m",
        revision="r",
        layout=LAYOUT,
        prompt=PROMPT,
        lease_url="http://127.0.0.1:1",
        socket="/s",
    )


def _verify(handle: KvTransferParams, **changes: Any) -> None:
    now = {"model": "m", "revision": "r", "layout": LAYOUT, "prompt": [*PROMPT, 5], "now": 1010.0}
    verify(handle, **(now | changes))


def test_accepted_after_the_wire() -> None:
    handle = msgspec.json.decode(msgspec.json.encode(_handle()), type=KvTransferParams)
    assert handle.do_remote_prefill
    assert handle.remote_block_ids == [7, 9]
    assert handle.expires_at == 1030.0
    _verify(handle)


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ({"remote_engine_id": None}, KvUnavailable, "remote_engine_id"),
        ({"remote_block_ids": []}, KvUnavailable, "remote_block_ids"),
        ({"remote_request_id": ""}, KvUnavailable, "remote_request_id"),
        ({"nonce": None}, KvUnavailable, "nonce"),
        ({"kv_checksum": None}, KvUnavailable, "kv_checksum"),
        ({"model": "other"}, Incompatible, "model other"),
        ({"revision": "r2"}, Incompatible, "revision r2"),
        ({"layout": "0" * 16}, Incompatible, "layout"),
        ({"tp_size": 2}, Incompatible, "tp_size 2"),
        ({"expires_at": 1009.0}, KvUnavailable, "expired 1.0 s ago"),
        ({"expires_at": 1010.0}, KvUnavailable, "expired"),
        ({"num_tokens": 0}, KvUnavailable, "holds 0 tokens"),
        ({"num_tokens": 101}, KvUnavailable, "holds 101 tokens, the prompt has 101"),
        ({"num_tokens": -3}, KvUnavailable, "holds -3"),
        ({"num_tokens": 64}, KvUnavailable, "2 blocks; 64 tokens take 1"),
        ({"remote_block_ids": [7]}, KvUnavailable, "1 blocks; 100 tokens take 2"),
        ({"num_tokens": 99}, KvUnavailable, "other tokens"),
        ({"tokens_checksum": None}, KvUnavailable, "other tokens"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(fault: dict[str, Any], kind: type[DiphaseError], says: str) -> None:
    with pytest.raises(kind, match=says):
        _verify(msgspec.structs.replace(_handle(), **fault))


def test_another_prompt_is_refused() -> None:
    with pytest.raises(KvUnavailable, match="other tokens"):
        _verify(_handle(), prompt=[*PROMPT[:-1], 1, 5])
    with pytest.raises(KvUnavailable, match="the prompt has 100"):
        _verify(_handle(), prompt=PROMPT)


def test_a_longer_prompt_is_accepted() -> None:
    _verify(_handle(), prompt=[*PROMPT, 1, 2, 3])


@pytest.mark.parametrize("field", ["dtype", "block_size", "layers", "kv_heads", "head_dim", "tp_size"])
def test_any_other_layout_is_incompatible(field: str) -> None:
    other = {"dtype": "bfloat16"}.get(field, 1 if field != "tp_size" else 2)
    with pytest.raises(Incompatible):
        _verify(_handle(), layout=msgspec.structs.replace(LAYOUT, **{field: other}))
