"""Bytes and milliseconds of a KV handoff, as a running stack counts them, over each transport."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import httpx

from tests.e2e.stack import MODEL, Stack

PROMPTS = (512, 1500)  # tokens
REPEATS = 12


def _pulls(stack: Stack, transport: str) -> tuple[float, float, float]:
    """(bytes, seconds, transfers) that the decode worker has pulled so far."""
    worker = "decode-worker-0"
    return (
        stack.metric(worker, "diphase_kv_transfer_bytes_total", direction="pull", transport=transport),
        stack.metric(worker, "diphase_kv_transfer_seconds_sum", transport=transport),
        stack.metric(worker, "diphase_kv_transfer_seconds_count", transport=transport),
    )


def _ask(stack: Stack, tokens: int, salt: int) -> None:
    prompt = [(index * 31 + salt * 977) % 40_000 + 100 for index in range(tokens)]
    answer = httpx.post(
        f"{stack.gateway}/v1/completions",
        json={"model": MODEL, "prompt": prompt, "max_tokens": 2, "temperature": 0, "ignore_eos": True},
        headers={"Authorization": f"Bearer {stack.api_key}"},
        timeout=120,
    )
    assert answer.status_code == 200, answer.text


def _measure(transport: str) -> dict[str, dict[str, float]]:
    project = Path(tempfile.mkdtemp(prefix="diphase-bench-"))
    stack = Stack(project, config={"kv": {"transport": transport}})
    figures = {}
    try:
        stack.up()
        for tokens in PROMPTS:
            _ask(stack, tokens, 0)  # the first one connects, and maps the pool
            before = _pulls(stack, transport)
            for salt in range(1, REPEATS + 1):
                _ask(stack, tokens, salt)
            size, seconds, count = (now - then for now, then in zip(_pulls(stack, transport), before, strict=True))
            figures[str(tokens)] = {
                "bytes": size / count,
                "ms": seconds / count * 1e3,
                "gb_per_s": size / seconds / 1e9,
            }
            one = f"{size / count / 2**20:6.1f} MiB in {seconds / count * 1e3:6.1f} ms, {size / seconds / 1e9:.1f} GB/s"
            print(f"  {transport}, {tokens:5d} tokens: {one} (mean of {count:.0f}, checksum included)", flush=True)
    finally:
        stack.down()
        shutil.rmtree(project, ignore_errors=True)
    return figures


def measure() -> dict[str, object]:
    """Both transports."""
    return {transport: _measure(transport) for transport in ("shm", "tcp")}
