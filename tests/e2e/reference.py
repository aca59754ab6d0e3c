"""What transformers' own `generate` answers, and whether a difference from it is a tie."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from infra.paths import cache_dir

TIE = 1e-3  # two logits closer than this may change places with the order of summation


@dataclass
class Reference:
    """transformers on the same folder and in the same precision."""

    path: Path
    model: PreTrainedModel
    tokenizer: AutoTokenizer

    @classmethod
    def load(cls, path: Path) -> Reference:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        return cls(path, model, AutoTokenizer.from_pretrained(path))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    @torch.inference_mode()
    def greedy(self, ids: list[int], max_tokens: int) -> list[int]:
        """The answer's token ids, the end-of-text token included if it came."""
        prompt = torch.tensor([ids])
        out = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=max_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            pad_token_id=self.tokenizer.eos_token_id,
        )
        answer: list[int] = out[0, len(ids) :].tolist()
        return answer

    def greedy_all(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """`greedy` of each prompt. It takes minutes, so what was computed by the same versions on the same weights
        and CPU is read from the cache.
        """
        key = [prompts, max_tokens, transformers.__version__, torch.__version__, self.path.name, _cpu()]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        kept = cache_dir(os.environ) / "reference" / f"{digest}.json"
        if kept.exists():
            answers: list[list[int]] = json.loads(kept.read_text())
            return answers
        answers = [self.greedy(prompt, max_tokens) for prompt in prompts]
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(answers))
        partial.replace(kept)
        return answers

    @torch.inference_mode()
    def is_tie(self, prefix: list[int], one: int, other: int) -> bool:
        """Whether transformers itself rates both tokens the same after `prefix`."""
        logits = self.model(torch.tensor([prefix])).logits[0, -1]
        return bool((logits[one] - logits[other]).abs() < TIE)

    def assert_equal(self, prompt: list[int], got: list[int], expected: list[int], what: str) -> int:
        """Token for token; a first difference must be a tie, after which the texts may part. Returns ties seen."""
        for index, (one, other) in enumerate(zip(got, expected, strict=False)):
            if one != other:
                prefix = prompt + expected[:index]
                assert self.is_tie(prefix, one, other), f"{what}: token {index} is {one}, transformers says {other}"
                return 1
        assert len(got) == len(expected), f"{what}: {len(got)} tokens, transformers gives {len(expected)}"
        return 0


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith("model name")), platform.processor())
