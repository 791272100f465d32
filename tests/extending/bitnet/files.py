"""BitNet's files as transformers writes them (Ma et al. 2024, arXiv 2402.17764): how a module is packed.

``weight`` uint8 ``[N / 4, K]`` and ``weight_scale`` ``[1]``, which products are divided by.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.base.errors import CheckpointError
from engine.compute.layers.linear import choose
from engine.compute.layers.linear.base import LinearShape, Path
from engine.config.model import Quantisation
from engine.config.raw import RawConfig
from engine.formats.quantised import quantisation
from engine.formats.quantised.layouts import Layout, PackedModule
from engine.formats.quantised.quantisation import PackedFormat
from engine.formats.tensors import FLOATING, MISMATCH, Tensors
from tests.extending.bitnet.linear import TernaryLinear, TernaryPart


@dataclass(frozen=True)
class TernaryLayout(Layout):
    in_features: int

    def shape(self, out_features: int) -> LinearShape:
        return LinearShape("ternary", self.in_features, out_features, bits=2)


def register() -> None:
    choose.register("ternary", [Path(TernaryLinear.path, TernaryLinear)])
    quantisation.register("bitnet", PackedFormat(_read, _packed))


def _read(raw: RawConfig) -> Quantisation:
    return Quantisation("bitnet", 2)


def _packed(tensors: Tensors, how: Quantisation, name: str, out_features: int, in_features: int) -> PackedModule | None:
    weight, scale = f"{name}.weight", f"{name}.weight_scale"
    if not tensors.has(scale):
        return None
    if out_features % 4:
        raise CheckpointError(f"{name} has {out_features} output features, which fill no bytes of four. {MISMATCH}")
    tensors.check(weight, (out_features // 4, in_features), (torch.uint8,), packed=True)
    tensors.check(scale, (1,), FLOATING, packed=True)
    return PackedModule(
        TernaryLayout(in_features), lambda: TernaryPart(out_features, tensors.view(weight), float(tensors.view(scale)))
    )
