"""A linear layer in float32: a few rows go through compiled code, many through oneDNN.

Decode computes one row for each sequence; then a layer costs what reading its weights costs, and linear.c reads them
faster than the libraries do, which are made for many rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

LANES, ROWS = 16, 16  # as in the source; the most rows of a tile
FEW = 32  # rows; from about twice as many on, oneDNN is ahead


class _Shape(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("rows", "in", "out", "threads"))


class NativeLinear:
    """Computes up to FEW rows by a weight [out, in] in float32 and a bias [out]; `many` computes more.

    A row's result does not depend on the rows beside it, bit for bit, as long as all of them are few.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        weight: Tensor,
        bias: Tensor | None,
        many: Callable[[Tensor], Tensor],
        threads: int,
    ) -> None:
        self._function = library.linear_float32
        self._function.argtypes = [*[ctypes.c_void_p] * 4, ctypes.POINTER(_Shape), ctypes.c_void_p]
        self._function.restype = None
        self._panels = panels(library, weight, threads)
        self._bias = None if bias is None else bias.contiguous()
        (self._out, self._in), self._threads = weight.shape, threads
        self._scratch = torch.empty(self._in * ROWS)
        self._many = many

    def __call__(self, x: Tensor) -> Tensor:
        """[…, in] to […, out]."""
        rows = x.numel() // self._in
        if rows > FEW:
            return self._many(x)
        x = x.contiguous()
        out = x.new_empty((*x.shape[:-1], self._out))
        shape = _Shape(rows, self._in, self._out, self._threads)
        bias = None if self._bias is None else self._bias.data_ptr()
        self._function(x.data_ptr(), self._panels.data_ptr(), bias, out.data_ptr(), shape, self._scratch.data_ptr())
        return out


def panels(library: ctypes.CDLL, weight: Tensor, threads: int = 1) -> Tensor:
    """[out, in] in float32 as [panels, in, LANES], filled up with zeros."""
    library.linear_panels.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_Shape)]
    library.linear_panels.restype = None
    weight = weight.contiguous()
    out, width = weight.shape
    made = weight.new_empty((-(-out // LANES), width, LANES))
    library.linear_panels(weight.data_ptr(), made.data_ptr(), _Shape(0, width, out, threads))
    return made
