"""Seconds of prefill and decode beside published measurements; docs/capacity.md has the same table."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra import hardware
from infra.capacity.roofline import Engine, Group
from infra.capacity.shape import Shape
from infra.hardware import Gpu
from tests.infra.capacity import models

DOC = Path(__file__).parents[3] / "docs" / "capacity.md"


@dataclass(frozen=True)
class Measured:
    """A published measurement: `milliseconds` of a prompt of `tokens`, or, with a batch, of a decode step."""

    source: str
    name: str
    config: dict[str, Any]
    dtype: str
    gpus: int
    gpu: Gpu
    tokens: int
    milliseconds: float
    batch: int = 0

    def predicted(self) -> float:
        group = Group(self.gpu, self.gpus, Shape.from_config(self.config, dtype=self.dtype))
        seconds = group.decode_seconds(self.batch, self.tokens) if self.batch else group.prefill_seconds(self.tokens)
        return seconds * 1e3

    @property
    def row(self) -> str:
        """As docs/capacity.md has it."""
        what = f"decode, {self.batch} × {self.tokens:,}" if self.batch else f"prefill, {self.tokens:,}"
        off = self.predicted() / self.milliseconds - 1
        return (
            f"| {self.source} | {self.name} {self.dtype} | {self.gpus} × {self.gpu.name} | {what} tokens "
            f"| {self.milliseconds:.3g} ms | {self.predicted():.3g} ms | {off:+.0%} |"
        )


# TensorRT-LLM's docs/source/performance.md of v0.6.1 (first-token latency), NVIDIA's NIM LLM benchmarking guide
# (inter-token latency, TTFT at concurrency 1), vLLM's nightly performance benchmark, build 9515 (latency of 128 tokens
# after 32, batch 8: the context is 96 in the mean).
MEASURED = [
    Measured("A", "Llama 2 7B", models.LLAMA_2_7B, "float16", 1, hardware.A100_80, 2048, 133),
    Measured("A", "Llama 2 70B", models.LLAMA_2_70B, "float16", 4, hardware.A100_80, 2048, 377),
    Measured("A", "Llama 2 7B", models.LLAMA_2_7B, "fp8", 1, hardware.H100, 2048, 36),
    Measured("A", "Llama 2 70B", models.LLAMA_2_70B, "fp8", 4, hardware.H100, 2048, 109),
    Measured("A", "Llama 2 7B", models.LLAMA_2_7B, "fp8", 1, hardware.L40S, 2048, 73),
    Measured("B", "Llama 3.3 70B", models.LLAMA_3_70B, "fp8", 2, hardware.H100, 5000, 406.77),
    Measured("B", "Llama 3.3 70B", models.LLAMA_3_70B, "fp8", 2, hardware.H100, 1500, 18.91, batch=1),
    Measured("B", "Llama 3.3 70B", models.LLAMA_3_70B, "fp8", 2, hardware.H100, 5250, 18.58, batch=1),
    Measured("C", "Llama 3 70B", models.LLAMA_3_70B, "bfloat16", 4, hardware.H200, 96, 2077.5 / 128, batch=8),
    Measured("C", "Llama 3.1 8B", models.LLAMA_3_8B, "bfloat16", 1, hardware.H200, 96, 833.4 / 128, batch=8),
    Measured("C", "Mixtral 8x7B", models.MIXTRAL_8X7B, "bfloat16", 2, hardware.H200, 96, 1917.4 / 128, batch=8),
]


@pytest.mark.parametrize("one", MEASURED, ids=lambda one: one.row)
def test_a_prediction_is_within_a_quarter_of_what_was_measured(one: Measured) -> None:
    assert one.predicted() == pytest.approx(one.milliseconds, rel=0.25)


def test_the_docs_have_the_same_table() -> None:
    rows = [line for line in DOC.read_text().splitlines() if re.match(r"\| [ABC] \|", line)]
    assert rows == [one.row for one in MEASURED]


def test_more_gpus_are_faster_and_hold_more() -> None:
    shape = Shape.from_config(models.LLAMA_3_70B)
    groups = [Group(hardware.H100, size, shape) for size in (2, 4, 8)]
    for small, large in itertools.pairwise(groups):
        assert large.prefill_seconds(2000) < small.prefill_seconds(2000)
        assert large.decode_seconds(8, 2000) < small.decode_seconds(8, 2000)
        assert large.sequences(2000) > small.sequences(2000)


def test_prefill_is_bound_by_compute_and_decode_by_memory() -> None:
    """A GPU with more FLOPS helps the one, a GPU with more bandwidth the other: H200 beside H100."""
    shape = Shape.from_config(models.LLAMA_3_8B)
    old, new = (Group(gpu, 1, shape) for gpu in (hardware.H100, hardware.H200))
    assert new.prefill_seconds(4000) == old.prefill_seconds(4000)
    assert old.decode_seconds(32, 2000) / new.decode_seconds(32, 2000) == pytest.approx(4.8 / 3.35, rel=0.1)


def test_kv_is_copied_where_there_are_fewer_heads_than_gpus() -> None:
    eight_heads = Shape.from_config(models.LLAMA_3_70B)
    assert Group(hardware.H100, 8, eight_heads).kv_copies == 1
    few = Shape.from_config({**models.LLAMA_3_70B, "num_key_value_heads": 2})
    assert Group(hardware.H100, 8, few).kv_copies == 4
    assert Group(hardware.H200, 8, Shape.from_config(models.DEEPSEEK_V3)).kv_copies == 8


def test_memory_is_what_weights_leave() -> None:
    shape = Shape.from_config(models.LLAMA_3_70B)
    alone = Group(hardware.H100, 1, shape)
    assert alone.kv_room < 0
    assert alone.sequences(1) == 0
    pair = Group(hardware.H100, 2, shape, Engine(memory=1.0))
    assert pair.kv_room == pytest.approx(160e9 - 70.55e9 * 2, rel=1e-3)
    assert pair.sequences(1000) == int(pair.kv_room // (1000 * 327_680))


def test_a_figure_that_nobody_verified_is_not_guessed() -> None:
    group = Group(hardware.B300, 1, Shape.from_config(models.LLAMA_3_8B))
    with pytest.raises(ValueError, match="FLOPS of B300 are not verified"):
        group.prefill_seconds(10)
