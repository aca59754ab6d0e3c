"""What the scheduler's tests share: heartbeats and requests with sensible values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from services.common.wire import Capacity, Heartbeat, Layout, Load, PlaceRequest

LAYOUT = Layout(dtype="float32", block_size=64, layers=30, kv_heads=3, head_dim=64)


@pytest.fixture(scope="session")
def beat() -> Callable[..., Heartbeat]:
    """`beat("decode-worker-0", "decode", sequence, active=[…], …)`; fields of layout, capacity and load go by name."""

    def make(worker_id: str, phase: str, sequence: int = 1, **fields: Any) -> Heartbeat:
        capacity = {"max_running": 4, "max_waiting": 0, "max_model_len": 8192, "kv_blocks": 100}
        capacity |= {name: fields.pop(name) for name in list(fields) if name in capacity}
        layout = {name: fields.pop(name) for name in list(fields) if name in Layout.__struct_fields__}
        load = {name: fields.pop(name) for name in list(fields) if name in Load.__struct_fields__}
        load.setdefault("kv_blocks_free", capacity["kv_blocks"])
        known = {
            "engine_id": f"{worker_id}/boot-1",
            "url": f"http://{worker_id}",
            "model": "smol",
            "revision": "main",
            "layout": Layout(**({name: getattr(LAYOUT, name) for name in LAYOUT.__struct_fields__} | layout)),
        }
        values = known | fields
        return Heartbeat(
            worker_id=worker_id,
            phase=phase,
            sequence=sequence,
            capacity=Capacity(**capacity),
            load=Load(**load),
            **values,
        )

    return make


@pytest.fixture(scope="session")
def ask() -> Callable[..., PlaceRequest]:
    """`ask("r1", "decode")`: a request for a worker."""

    def make(request_id: str, phase: str = "decode", **fields: Any) -> PlaceRequest:
        values = {"model": "smol", "prompt_tokens": 100, "max_tokens": 50, "timeout": 20.0} | fields
        return PlaceRequest(request_id=request_id, phase=phase, **values)

    return make
