"""Linear layers: a weight is rearranged once for the code that multiplies by it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from services.worker.engine.torch.native.linear import NativeLinear

_ROWS_HINT = 64  # the packing is made for so many rows and serves any number

Linear = Callable[[Tensor], Tensor]  # […, in] to […, out]


class PackedLinear:
    """A linear layer whose weight oneDNN has reordered once: about twice as fast as a plain one in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS_HINT)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[…, in] to […, out]."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return out


class PlainLinear:
    """A linear layer as torch computes it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """[…, in] to […, out]."""
        return functional.linear(x, self._weight, self._bias)


@dataclass(frozen=True)
class Linears:
    """How this machine computes linear layers of one dtype.

    With a `library` (see native.compiler) float32 layers compute a few rows in compiled code, on `threads` threads.
    """

    dtype: torch.dtype
    library: ctypes.CDLL | None
    threads: int

    def pack(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """The layer of a weight [out, in] and a bias [out], both in `dtype`; it keeps neither where it packs."""
        many: Linear = PackedLinear(weight, bias) if self._has_onednn() else PlainLinear(weight, bias)
        if self.library is None or self.dtype != torch.float32:
            return many
        return NativeLinear(self.library, weight, bias, many, self.threads)

    def _has_onednn(self) -> bool:
        """Whether oneDNN computes in this dtype on this CPU."""
        if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            return False
        return self.dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
