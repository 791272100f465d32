"""A linear layer to which some rows of a step add a low-rank product of their own: LoRA (Hu et al. 2021,
arXiv 2106.09685), with several adapters in one step as in S-LoRA (Sheng et al. 2023, arXiv 2311.03285)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.batch import AdapterRows
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.tiled import tiled_matmul
from engine.compute.layers.numerics import Numerics


class LowRank(NamedTuple):
    """``up (down x)`` is added to the output features ``[start, stop)``; ``up`` has the adapter's scale in it."""

    down: Tensor  # [r, in_features], in the model's dtype
    up: Tensor  # [stop - start, r]
    start: int
    stop: int

    def forward(self, x: Tensor, invariant: bool) -> Tensor:
        """``x [n, in_features]`` -> ``[n, stop - start]``; float32, and each row by itself, where ``invariant``."""
        if not invariant:
            return F.linear(F.linear(x, self.down), self.up)
        inner = tiled_matmul(x, [(0, self.down.float().t())], self.down.shape[0])
        return tiled_matmul(inner, [(0, self.up.float().t())], self.up.shape[0])


class StepAdapters:
    """Rows of the current step that have an adapter; all layers of a model share the object."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: Sequence[AdapterRows] = ()


class Adapted(Linear):
    """``base``, and what adapters add to its rows: each the parts of its own number, rows without one nothing.

    Its sizes and its way to compute are the base's, which is what a step without adapters does.
    """

    def __init__(self, base: Linear, step: StepAdapters, numerics: Numerics) -> None:
        self.base, self.step, self.numerics = base, step, numerics
        self.in_features, self.out_features = base.in_features, base.out_features
        self.kind, self.path, self.declined = base.kind, base.path, base.declined
        self.as_in_file, self.tied, self.float32_is_free = base.as_in_file, base.tied, base.float32_is_free
        self.parts: dict[int, tuple[LowRank, ...]] = {}
        """By the adapter's number."""

    def forward(self, x: Tensor) -> Tensor:
        return self._added(self.base.forward(x), x)

    def forward_float32(self, x: Tensor) -> Tensor:
        return self._added(self.base.forward_float32(x), x)

    def _added(self, out: Tensor, x: Tensor) -> Tensor:
        """``out [T, out_features]``, a tensor of the base's making, with what each group of rows adds to it."""
        for adapter, rows in self.step.groups:
            parts = self.parts.get(adapter, ())
            mine = x if rows is None or not parts else x.index_select(0, rows)
            for part in parts:
                added = part.forward(mine, self.numerics.batch_invariant).to(out.dtype)
                columns = out[:, part.start : part.stop]
                # (Rows are different ones, so that nothing is added to the same number twice.)
                columns.add_(added) if rows is None else columns.index_add_(0, rows, added)
        return out

    def storage_size(self) -> int:
        """The base's: what adapters hold is counted with them."""
        return self.base.storage_size()

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        return self.base.dequantised(dtype)
