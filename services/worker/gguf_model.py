"""Turns a Llama model in a GGUF file into the folder that transformers reads: float32 safetensors and JSON files.

What the quantised file holds is what the folder holds: weights are dequantised, nothing is rounded again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_CONTROL = 3  # token type in GGUF
_OUTSIDE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INSIDE = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, folder: Path) -> None:
    """Write the model of `source` into the existing folder `folder`; raises ValueError for what it cannot convert."""
    reader = gguf.GGUFReader(source)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    kinds = meta["general.architecture"], meta["tokenizer.ggml.model"], meta.get("tokenizer.ggml.pre")
    if kinds != ("llama", "gpt2", "smollm"):
        raise ValueError(f"{source.name}: architecture and tokenizer are {kinds}, not ('llama', 'gpt2', 'smollm')")
    weights = dict(_weights(reader, meta))
    # Tied embeddings: transformers restores lm_head from the embeddings where the file has none.
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer(meta).save(str(folder / "tokenizer.json"))
    _write(folder / "config.json", _config(meta, tied="lm_head.weight" not in weights))
    _write(folder / "tokenizer_config.json", _tokenizer_config(meta))
    _write(folder / "generation_config.json", {**_special(meta), "transformers_version": "5.24.0"})


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _weights(reader: Any, meta: dict[str, Any]) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        data = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if parts[0] == "blk":
            _, layer, kind, suffix = parts
            if kind in heads:
                data = _split_halves(data, heads[kind])
            yield f"model.layers.{layer}.{_INSIDE[kind]}.{suffix}", np.ascontiguousarray(data)
        else:
            kind, suffix = parts
            yield f"{_OUTSIDE[kind]}.{suffix}", np.ascontiguousarray(data)


def _split_halves(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """GGUF interleaves each head's two rotary halves, transformers keeps them one after the other."""
    rows, *rest = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(weight.shape)


def _special(meta: dict[str, Any]) -> dict[str, int]:
    return {
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }


def _config(meta: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": meta["llama.attention.head_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.rope.dimension_count"],
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": meta["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": meta["llama.rope.freq_base"]},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "vocab_size": meta["llama.vocab_size"],
        **_special(meta),
    }


def _tokenizer(meta: dict[str, Any]) -> Tokenizer:
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    # What GGUF calls "smollm": each digit by itself, then GPT-2's rule.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = meta["tokenizer.ggml.token_type"]
    control = [
        AddedToken(token, special=True, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind == _CONTROL
    ]
    tokenizer.add_special_tokens(control)
    return tokenizer


def _tokenizer_config(meta: dict[str, Any]) -> dict[str, Any]:
    tokens = meta["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta["llama.context_length"],
        "chat_template": meta["tokenizer.chat_template"],
    }
