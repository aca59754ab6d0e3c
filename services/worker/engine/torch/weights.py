"""Reads a model folder's weights, in however many files they lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor


class Weights:
    """The tensors of a folder's *.safetensors, by name."""

    def __init__(self, files: list[Any], dtype: torch.dtype) -> None:
        self._of = {name: file for file in files for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        self._dtype = dtype

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def __getitem__(self, name: str) -> Tensor:
        """A tensor in the dtype that was asked for, maybe a view of the file; raises ValueError if there is none."""
        if name not in self._of:
            raise ValueError(f"the model's weights have no {name}, which its config.json promises")
        tensor: Tensor = self._of[name].get_tensor(name)
        return tensor.to(self._dtype)


@contextmanager
def weights_of(folder: Path, dtype: torch.dtype) -> Iterator[Weights]:
    """The weights of a model folder, while its files are open."""
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(path, framework="pt")) for path in sorted(folder.glob("*.safetensors"))]
        yield Weights(files, dtype)
