"""Sizes of well-known models, beside what is published of them."""

from __future__ import annotations

from typing import Any

import pytest

from infra.capacity.shape import Shape, UnknownModel
from tests.infra.capacity import models


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        # "The Llama 3 Herd of Models" (arXiv 2407.21783) and the model cards: 8.03, 70.6, 405.9 billion.
        (models.LLAMA_3_8B, 8.03e9, None),
        (models.LLAMA_3_70B, 70.55e9, None),
        (models.LLAMA_3_405B, 405.85e9, None),
        (models.QWEN_2_5_72B, 72.7e9, None),
        # "Mixtral of Experts" (arXiv 2401.04088): 47B of which 13B are used for a token.
        (models.MIXTRAL_8X7B, 46.7e9, 12.9e9),
        # "DeepSeek-V3 Technical Report" (arXiv 2412.19437): 671B, 37B activated.
        (models.DEEPSEEK_V3, 671e9, 37e9),
        (models.SMOLLM2_135M, 134.5e6, None),
    ],
)
def test_parameters_are_the_published_ones(config: dict[str, Any], total: float, active: float | None) -> None:
    shape = Shape.from_config(config)
    assert shape.parameters == pytest.approx(total, rel=0.002)
    if active:
        assert shape.active == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize(
    ("config", "kilobytes"),
    # "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1: KV cache of a token in BF16.
    [(models.DEEPSEEK_V3, 70.272), (models.QWEN_2_5_72B, 327.680), (models.LLAMA_3_405B, 516.096)],
)
def test_kv_of_a_token_is_the_published_one(config: dict[str, Any], kilobytes: float) -> None:
    assert Shape.from_config(config).kv_per_token == kilobytes * 1000


def test_a_batch_reads_more_experts_than_a_token_and_never_more_than_there_are() -> None:
    shape = Shape.from_config(models.MIXTRAL_8X7B)
    assert shape.read(1) == pytest.approx(shape.active)
    assert shape.active < shape.read(2) < shape.read(8) < shape.read(1000)
    assert shape.read(1000) == pytest.approx(shape.parameters - shape.embedding, rel=1e-6)
    dense = Shape.from_config(models.LLAMA_3_8B)
    assert dense.read(1) == dense.read(64) == dense.active


def test_precision_is_the_checkpoints_unless_somebody_says_otherwise() -> None:
    assert Shape.from_config(models.DEEPSEEK_V3).weight_bytes == 1
    assert Shape.from_config(models.DEEPSEEK_V3).kv_bytes == 2
    assert Shape.from_config(models.LLAMA_3_8B, dtype="int4").weight_bytes == 0.5
    assert Shape.from_config(models.LLAMA_3_8B, kv_dtype="fp8").kv_bytes == 1
    assert Shape.from_config({**models.LLAMA_3_8B, "torch_dtype": "float32"}).kv_bytes == 4
    inside = Shape.from_config({"text_config": models.LLAMA_3_8B, "torch_dtype": "bfloat16"})
    assert inside == Shape.from_config(models.LLAMA_3_8B)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_hidden_layers": None}, "no positive num_hidden_layers or n_layer"),
        ({"hidden_size": -1}, "no positive hidden_size"),
        ({"hidden_size": True}, "no positive hidden_size"),
        ({"torch_dtype": "int3"}, "dtype 'int3' is unknown"),
        ({"quantization_config": {"quant_method": "hqq"}}, "give --dtype"),
        ({"num_key_value_heads": 5}, "no multiple of 5 KV heads"),
        ({"mamba_d_state": 128}, "mamba_d_state"),
        ({"is_encoder_decoder": True}, "Diphase serves decoders alone"),
    ],
)
def test_what_the_model_does_not_cover_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UnknownModel, match=says):
        Shape.from_config({**models.LLAMA_3_8B, **change})
