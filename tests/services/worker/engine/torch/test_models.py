"""Small models with random weights, of each family: our code and transformers' give the same logits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from services.worker.engine.protocol import EngineRequest, Sampling
from services.worker.engine.torch import batch, generic, llama, loader, rotary
from services.worker.engine.torch.batch import Span
from services.worker.engine.torch.kv_pool import KvPool
from services.worker.engine.torch.language_model import LanguageModel
from services.worker.engine.torch.layout import layout_of
from services.worker.engine.torch.linears import Linears
from services.worker.engine.torch.sequence import Sequence

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "llama with tied embeddings": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama with biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama 3": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama with longer turns": LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}
    ),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
}
TOKENS = [3, 77, 12, 127, 0, 9, 64, 31, 5]


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A model of CONFIGS, saved in several files."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(CONFIGS[request.param])
    for name, parameter in model.named_parameters():  # norms and biases begin as ones and zeros
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    return tmp_path


def _logits(model: LanguageModel, folder: Path, dtype: str, parts: tuple[int, ...]) -> Tensor:
    """Those of every token of TOKENS, computed in parts, the later ones on the KV of the earlier."""
    pool = KvPool(layout_of(folder, dtype, block_size=4), num_blocks=4)
    sequence = Sequence.of(EngineRequest("one", TOKENS, 1, Sampling(), deadline=0.0))
    sequence.blocks = [2, 0, 3]
    found = []
    with torch.inference_mode():
        for count in parts:
            step = batch.build([Span(sequence, count)], pool)
            found.append(model.logits(step, torch.arange(count)).float())
            sequence.computed += count
    return torch.cat(found)


@pytest.mark.parametrize("folder", CONFIGS, indirect=True)
def test_logits_are_those_of_transformers(folder: Path) -> None:
    with torch.inference_mode():
        wanted = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([TOKENS])).logits[0]
    ours = loader.load(folder, "float32", None, 1)
    assert isinstance(ours, llama.Llama)
    theirs = generic.load(folder, Linears(torch.float32, None, 1))
    for model in (ours, theirs):
        for parts in ((9,), (5, 1, 3), (1,) * 9):
            assert (_logits(model, folder, "float32", parts) - wanted).abs().max() < 2e-5, (model, parts)


@pytest.mark.parametrize("folder", ["llama", "qwen3"], indirect=True)
def test_bfloat16_is_as_near_as_transformers(folder: Path) -> None:
    with torch.inference_mode():
        exact = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([TOKENS])).logits[0]
        half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)(torch.tensor([TOKENS])).logits[0]
    ours = _logits(loader.load(folder, "bfloat16", None, 1), folder, "bfloat16", (9,))
    assert (ours - exact).abs().mean() < 1.5 * (half.float() - exact).abs().mean()


@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(**SIZES, head_dim=8),
        MistralConfig(**SIZES, sliding_window=8),
        Qwen2Config(**SIZES, use_sliding_window=True),
        LlamaConfig(**SIZES, hidden_act="gelu"),
        LlamaConfig(**SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
    ],
    ids=lambda config: str(config.model_type),
)
def test_what_our_code_lacks_is_left_to_transformers(config: PreTrainedConfig, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    assert not llama.knows(json.loads((tmp_path / "config.json").read_text()))


def test_old_files_say_the_same_otherwise() -> None:
    scaling = {key: value for key, value in LLAMA3.items() if key not in ("rope_type", "rope_theta")}
    old = {"rope_theta": 10_000.0, "rope_scaling": {**scaling, "type": "llama3"}}
    new = {"rope_parameters": LLAMA3}
    assert torch.equal(
        rotary.frequencies(16, rotary.parameters_of(old)), rotary.frequencies(16, rotary.parameters_of(new))
    )


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_a_missing_weight_is_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    with pytest.raises(ValueError, match=r"have no model\.layers\.3\."):
        loader.load(folder, "float32", None, 1)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_transformers_is_not_imported_for_it(folder: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from services.worker.engine.torch import engine, loader\n"
        f"loader.load(pathlib.Path({str(folder)!r}), 'float32', None, 1)\n"
        "assert 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
