"""Seconds of a prefill and of a decode step on some GPUs, by the roofline: the slower of compute and memory.

Williams, Waterman, Patterson, "Roofline" (CACM 52(4), 2009). What an engine reaches of the peaks are the constants of
`Engine`: fitted to published measurements, which docs/capacity.md lists with the deviation of each.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.capacity.shape import Shape
from infra.hardware import GB, Gpu

TERA = 1e12


@dataclass(frozen=True)
class Engine:
    """What a good engine reaches: shares of peaks, seconds that no peak explains, shares of memory."""

    prefill_16: float = 0.65
    prefill_8: float = 0.43
    decode_compute: float = 0.5
    bandwidth: float = 0.75
    layer_seconds: float = 45e-6
    all_reduce_seconds: float = 10e-6
    network: float = 0.7
    # Of a GPU's memory, for weights and KV; the rest is activations, graphs, libraries.
    memory: float = 0.9


@dataclass(frozen=True)
class Group:
    """GPUs that hold one copy of the model together, by tensor parallelism."""

    gpu: Gpu
    size: int
    shape: Shape
    engine: Engine = Engine()

    @property
    def compute(self) -> float:
        """Peak FLOP/s of all; raises ValueError where they are not known."""
        peak = self.gpu.tflops(self.shape.weight_bytes)
        if peak is None:
            raise ValueError(f"the FLOPS of {self.gpu.name} are not verified")
        return peak * TERA * self.size

    @property
    def bandwidth(self) -> float:
        """Bytes/s that an engine reads from the memory of all; raises ValueError where they are not known."""
        if self.gpu.memory_tb_s is None:
            raise ValueError(f"the memory bandwidth of {self.gpu.name} is not verified")
        return self.gpu.memory_tb_s * TERA * self.size * self.engine.bandwidth

    @property
    def kv_copies(self) -> float:
        """How often the KV of a token lies in the group: a KV head is not divided, and a latent has no heads."""
        if self.shape.latent:
            return float(self.size)
        return max(1.0, self.size / self.shape.kv_heads)

    @property
    def weights(self) -> float:
        """Bytes of the model, in all GPUs together."""
        return self.shape.parameters * self.shape.weight_bytes

    @property
    def kv_room(self) -> float:
        """Bytes for KV in all GPUs together; negative where not even the weights fit."""
        return self.gpu.memory_gb * GB * self.size * self.engine.memory - self.weights

    def sequences(self, tokens: int) -> int:
        """How many sequences of so many tokens fit at once."""
        return max(0, int(self.kv_room // (tokens * self.shape.kv_per_token * self.kv_copies)))

    def prefill_seconds(self, tokens: int) -> float:
        """Of one prompt alone: 2 FLOPs a parameter and token, and the causal half of attention."""
        shape = self.shape
        # Only the last token's logits are computed.
        flops = 2.0 * ((shape.active - shape.embedding) * tokens + shape.embedding)
        flops += shape.attention_flops(tokens, tokens / 2)
        reached = self.engine.prefill_8 if self.compute > self._sixteen else self.engine.prefill_16
        read = shape.read(tokens) * shape.weight_bytes
        return max(flops / (self.compute * reached), read / self.bandwidth) + self._rest(tokens)

    def decode_seconds(self, batch: int, tokens: float) -> float:
        """Of a step that gives each of `batch` sequences, with `tokens` tokens on average, one more."""
        shape = self.shape
        kv = batch * tokens * shape.kv_per_token * self.kv_copies
        read = shape.read(batch) * shape.weight_bytes + kv
        flops = 2.0 * shape.active * batch + shape.attention_flops(batch, tokens)
        compute = flops / (self.compute * self.engine.decode_compute)
        return max(read / self.bandwidth, compute) + self._rest(batch)

    @property
    def _sixteen(self) -> float:
        return (self.gpu.bf16_tflops or 0.0) * TERA * self.size

    def _rest(self, rows: int) -> float:
        """Seconds of launches and of two all-reduces a layer: a ring sends 2 (n-1)/n of the bytes."""
        seconds = self.shape.layers * self.engine.layer_seconds
        if self.size > 1:
            moved = rows * self.shape.hidden * 2 * 2 * (self.size - 1) / self.size
            each = self.engine.all_reduce_seconds + moved / (self.gpu.link_gb_s * GB)
            seconds += 2 * self.shape.layers * each
        return seconds
