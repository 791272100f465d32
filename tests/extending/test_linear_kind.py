"""A kind of linear layer in one file: weights in float16, made of a 32-bit checkpoint while it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import LinearShape, PackedLinear, Target
from engine.compute.layers.linear.base import Path as LayerPath
from engine.formats.quantised import quantise
from engine.formats.quantised.layouts import Layout
from engine.formats.quantised.quantise import Module, Packer, Shapes, Tensors
from tests.extending.busy_engine import check


class Half(PackedLinear):
    kind, path, held = "half", "multiply in float32", ("weight",)

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.weight = torch.empty(shape.out_features, shape.in_features, dtype=torch.float16, device=device)

    def fill(self, parts: Sequence[Any]) -> None:
        self.weight.copy_(torch.cat([part.weight for part in parts]))

    def forward_float32(self, x: Tensor) -> Tensor:
        # One row at a time gives a row the same bits whatever the others are.
        out = torch.stack([row @ self.weight.float().t() for row in x.float()])
        return out if self.bias is None else out + self.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_float32(x).to(x.dtype)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        return self.weight.to(dtype)


class HalfPart(NamedTuple):
    out_features: int
    weight: Tensor


@dataclass(frozen=True)
class HalfLayout(Layout):
    in_features: int

    def shape(self, out_features: int) -> LinearShape:
        return LinearShape("half", self.in_features, out_features)


class HalfPacker(Packer):
    title, scales = "float16", "weight"

    def layout(self, module: Module) -> Layout:
        return HalfLayout(module.in_features)

    def shapes(self, module: Module) -> Shapes:
        return {"weight": (torch.float16, (module.out_features, module.in_features))}

    def put(self, rows: Tensor, start: int, out: Tensors) -> None:
        out["weight"][start : start + len(rows)] = rows

    def part(self, module: Module, found: Tensors) -> HalfPart:
        return HalfPart(module.out_features, found["weight"])


@pytest.mark.slow
def test_a_linear_kind(model: Path) -> None:
    choose.register("half", [LayerPath(Half.path, Half)])
    quantise.PACKERS["half"] = HalfPacker()
    served = check(model, {}, quantise="half")
    loaded = served.engine.loaded
    assert loaded is not None
    assert loaded.card.quantisation == "float16, quantised from fp32 while loading"
    kinds = {linear.kind for name, linear in loaded.model.linears() if name != "head"}
    assert kinds == {"half"}
