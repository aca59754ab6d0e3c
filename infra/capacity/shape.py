"""What a model's config.json says about its cost: parameters, those at work for a token, bytes of KV of a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
# Settings of mixers whose state is no KV cache; a model of attention alone would be wrong about them.
OTHER_MIXERS = ("ssm_state_size", "mamba_d_state", "state_size", "linear_num_key_heads", "time_mix_extra_dim")


class UnknownModel(ValueError):
    """A config.json that the model of capacity does not cover; the message says why and what to do."""


@dataclass(frozen=True)
class Experts:
    """Feed-forward layers of which a token uses a few: `count` of them, `used` by a token, in `layers` layers."""

    count: int
    used: int
    shared: int
    width: int
    layers: int


@dataclass(frozen=True)
class Shape:
    """A decoder of attention and feed-forward layers. Widths are numbers of elements.

    `latent` is the width of what is cached of a token by multi-head latent attention, which has no heads of its own
    (DeepSeek-V2, arXiv 2405.04434, section 2.1); 0 for attention with KV heads.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    width: int
    vocabulary: int
    tied: bool
    experts: Experts | None
    latent: int
    attention: int
    weight_bytes: float
    kv_bytes: float

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, dtype: str | None = None, kv_dtype: str | None = None) -> Shape:
        """The shape that a Hugging Face config.json describes; raises UnknownModel.

        `dtype` and `kv_dtype` (keys of BITS) are those of weights and cache where they are not the checkpoint's.
        """
        text = config.get("text_config", config)
        _refuse(text)
        heads = _positive(text, "num_attention_heads", "n_head")
        hidden = _positive(text, "hidden_size", "n_embd")
        weight = _bits(dtype or _dtype(config)) / 8
        shape = cls(
            layers=_positive(text, "num_hidden_layers", "n_layer"),
            hidden=hidden,
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head=int(text.get("head_dim") or hidden // heads),
            width=_positive(text, "intermediate_size", "n_inner"),
            vocabulary=_positive(text, "vocab_size"),
            tied=bool(text.get("tie_word_embeddings", False)),
            experts=_experts(text),
            latent=int(text.get("kv_lora_rank") or 0) + int(text.get("qk_rope_head_dim") or 0),
            attention=_attention(text, heads, hidden),
            weight_bytes=weight,
            # Engines keep KV in 16 bits unless told otherwise, also where weights have 8.
            kv_bytes=_bits(kv_dtype) / 8 if kv_dtype else max(weight, 2.0),
        )
        if not shape.latent and shape.heads % shape.kv_heads:
            raise UnknownModel(f"{heads} heads are no multiple of {shape.kv_heads} KV heads: look at config.json")
        return shape

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, which are read by row and cost no FLOPs."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them; norms and biases are left out, less than 0.1 %."""
        return self._body(every=True) + self.embedding * (1 if self.tied else 2)

    @property
    def active(self) -> int:
        """Parameters that multiply for one token: layers and output head."""
        return self._body(every=False) + self.embedding

    def _body(self, *, every: bool) -> int:
        experts = self.experts
        dense = self.layers - (experts.layers if experts else 0)
        total = self.layers * self.attention + dense * 3 * self.hidden * self.width
        if experts:
            used = (experts.count if every else experts.used) + experts.shared
            router = experts.count * self.hidden
            total += experts.layers * (used * 3 * self.hidden * experts.width + router)
        return total

    def read(self, batch: int) -> float:
        """Parameters that a decode step of a batch reads: of the experts, those that some token of it uses.

        With uniform routing an expert is used by none of b tokens with probability (1 - used/count)^b.
        """
        experts = self.experts
        if not experts:
            return self.active
        share = 1 - (1 - experts.used / experts.count) ** batch
        touched = share * experts.count - experts.used
        return self.active + experts.layers * touched * 3 * self.hidden * experts.width

    @property
    def kv_per_token(self) -> float:
        """Bytes of KV of one token, in all layers."""
        elements = self.latent or 2 * self.kv_heads * self.head
        return self.layers * elements * self.kv_bytes

    def attention_flops(self, queries: int, keys: float) -> float:
        """FLOPs of scores and values: two products of 2 FLOPs for each query, key and element of a head."""
        return 4.0 * self.layers * self.heads * self.head * queries * keys


def _attention(text: Mapping[str, Any], heads: int, hidden: int) -> int:
    """Parameters of one layer's projections."""
    if not text.get("kv_lora_rank"):
        head = int(text.get("head_dim") or hidden // heads)
        kv_heads = int(text.get("num_key_value_heads") or heads)
        return hidden * head * (2 * heads + 2 * kv_heads)
    rank, rope = int(text["kv_lora_rank"]), int(text["qk_rope_head_dim"])
    plain, value = int(text["qk_nope_head_dim"]), int(text["v_head_dim"])
    query_rank = text.get("q_lora_rank")
    query = heads * (plain + rope)
    queries = hidden * query_rank + query_rank * query if query_rank else hidden * query
    keys = hidden * (rank + rope) + rank * heads * (plain + value)
    return int(queries + keys + heads * value * hidden)


def _experts(text: Mapping[str, Any]) -> Experts | None:
    count = text.get("n_routed_experts") or text.get("num_local_experts") or text.get("num_experts")
    if not count:
        return None
    layers = int(text["num_hidden_layers"])
    first = int(text.get("first_k_dense_replace") or 0)
    width = int(text.get("moe_intermediate_size") or text["intermediate_size"])
    return Experts(
        count=int(count),
        used=int(_positive(text, "num_experts_per_tok")),
        shared=int(text.get("n_shared_experts") or 0),
        width=width,
        layers=layers - first,
    )


def _refuse(text: Mapping[str, Any]) -> None:
    if other := [key for key in OTHER_MIXERS if text.get(key)]:
        raise UnknownModel(
            f"config.json has {other[0]}: layers whose state does not grow with the text; the model of capacity knows "
            "attention alone. Measure such a model instead"
        )
    if text.get("is_encoder_decoder"):
        raise UnknownModel("config.json says is_encoder_decoder; Diphase serves decoders alone")


def _dtype(config: Mapping[str, Any]) -> str:
    quantised = config.get("quantization_config") or {}
    if method := quantised.get("quant_method"):
        bits = quantised.get("bits") or (8 if "fp8" in str(method) else None)
        if not bits:
            raise UnknownModel(f"weights are quantised by {method}, of unknown width: give --dtype")
        return f"int{bits}"
    text = config.get("text_config", config)
    return str(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype") or "bfloat16")


def _bits(dtype: str) -> int:
    if dtype not in BITS:
        raise UnknownModel(f"dtype {dtype!r} is unknown; take one of {', '.join(BITS)}")
    return BITS[dtype]


def _positive(text: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise UnknownModel(f"config.json has no positive {' or '.join(names)}: is it a language model's?")
