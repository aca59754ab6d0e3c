"""The whole service through its gateway, beside transformers' `generate` in the same precision and threads."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path

import httpx
import torch

from tests.bench import engine
from tests.bench.engine import BATCHES, CONTEXT, PROMPTS, ROUNDS, STEPS, THREADS
from tests.e2e.stack import MODEL, Stack

ANSWER = 96  # tokens that each stream asks for


def _first_piece(stack: Stack, prompt: list[int], tokens: int) -> float:
    """Ask for `tokens` tokens and read them all; the moment of the first piece."""
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    with httpx.stream("POST", f"{stack.gateway}/v1/completions", json=body, headers=headers, timeout=300) as answer:
        assert answer.status_code == 200
        moments = [time.perf_counter() for line in answer.iter_lines() if line.startswith("data: {")]
    return moments[0]


def _ttft(stack: Stack, prompt: list[int]) -> float:
    started = time.perf_counter()
    return _first_piece(stack, prompt, 1) - started


def _pace(stack: Stack, prompts: list[list[int]]) -> float:
    """Seconds a token, all streams together, by the decode worker's counters while all of them write."""
    threads = [threading.Thread(target=_first_piece, args=(stack, prompt, ANSWER)) for prompt in prompts]
    for thread in threads:
        thread.start()
    samples: list[tuple[float, float]] = []
    while any(thread.is_alive() for thread in threads):
        worker = "decode-worker-0"
        if stack.metric(worker, "vllm:num_requests_running") == len(prompts):
            samples.append((time.perf_counter(), stack.metric(worker, "vllm:generation_tokens_total")))
        time.sleep(0.1)
    (begin, before), (end, after) = samples[0], samples[-1]
    return (end - begin) / (after - before)


def measure() -> dict[str, object]:
    """TTFT and decode rate."""
    project = Path(tempfile.mkdtemp(prefix="diphase-bench-"))
    stack = Stack(project, config={"engine": {"threads": THREADS}})
    torch.set_num_threads(THREADS)
    theirs = engine.Transformers(engine.model_path(), "float32")
    figures: dict[str, object] = {}
    try:
        stack.up()
        print(f"float32, {THREADS} thread for each phase, through the gateway, median of {ROUNDS}")
        for length in PROMPTS:
            pairs = []
            for salt in range(ROUNDS + 1):
                prompt = engine.prompt(length, salt)
                pairs.append((theirs.run([prompt], 1), _ttft(stack, prompt)))
            figures[f"ttft {length}"] = engine.row(f"TTFT, {length} tokens, ms", pairs[1:], 1e3)
        for batch in BATCHES:
            pairs = []
            for salt in range(ROUNDS + 1):
                prompts = [engine.prompt(CONTEXT, salt * 100 + index) for index in range(batch)]
                slow = theirs.run(prompts, STEPS + 1) - theirs.run(prompts, 1)
                pairs.append((slow / (STEPS * batch), _pace(stack, prompts)))
            figures[f"decode {batch}"] = engine.row(f"decode, {batch} at once, tokens/s", pairs[1:], None)
    finally:
        stack.down()
        shutil.rmtree(project, ignore_errors=True)
    return figures
