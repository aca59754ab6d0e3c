"""The compiled linear layer equals torch's, and a row's result is its own affair."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import nn

from services.worker.engine.torch.native import linear
from services.worker.engine.torch.native.linear import FEW, NativeLinear


def _layer(library: ctypes.CDLL, width: int, out: int, bias: bool, threads: int = 1) -> tuple[nn.Linear, NativeLinear]:
    torch.manual_seed(width * out)
    plain = nn.Linear(width, out, bias=bias).requires_grad_(False)
    return plain, NativeLinear(library, plain.weight, plain.bias, plain, threads)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 23, FEW, FEW + 1, 3 * FEW])
@pytest.mark.parametrize(
    ("width", "out", "bias", "threads"), [(576, 192, False, 1), (100, 48, True, 3), (33, 37, True, 2), (1, 1, False, 1)]
)
def test_equals_torch(library: ctypes.CDLL, rows: int, width: int, out: int, bias: bool, threads: int) -> None:
    plain, ours = _layer(library, width, out, bias, threads)
    x = torch.randn(1, rows, width)
    got = ours(x)
    assert got.shape == (1, rows, out)
    exact = nn.functional.linear(x.double(), plain.weight.double(), plain.bias.double() if bias else None)
    assert (got.double() - exact).abs().max() < 1e-5


def test_a_row_is_computed_as_if_alone(library: ctypes.CDLL) -> None:
    _, ours = _layer(library, 576, 200, True)
    x = torch.randn(FEW, 576)
    together = ours(x)
    for rows in (1, 2, 3, 7, 16, 21):
        assert torch.equal(ours(x[:rows]), together[:rows]), rows
    backwards = ours(x.flip(0)).flip(0)
    assert torch.equal(backwards, together)


def test_rows_that_do_not_lie_side_by_side(library: ctypes.CDLL) -> None:
    _, ours = _layer(library, 64, 32, False)
    x = torch.randn(64, 5).t()
    assert torch.equal(ours(x), ours(x.contiguous()))


@pytest.mark.parametrize(("out", "width"), [(37, 5), (32, 100), (1, 33)])
@pytest.mark.parametrize("threads", [1, 2])
def test_panels_hold_the_weight(library: ctypes.CDLL, out: int, width: int, threads: int) -> None:
    weight = torch.randn(out, width)
    packed = linear.panels(library, weight, threads)
    assert packed.shape == (-(-out // linear.LANES), width, linear.LANES)
    rows = packed.transpose(1, 2).reshape(-1, width)
    assert torch.equal(rows[:out], weight)
    assert not rows[out:].any()
    assert torch.equal(linear.panels(library, weight.t().contiguous().t()), packed), "however it lies"
