"""Places at which a loaded model computes the linear modules of its checkpoint, by the modules' names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from engine.compute.layers.attention import Attention
from engine.compute.layers.interface import WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.plain_mlp import PlainMLP
from engine.compute.models.adapters import Site
from engine.compute.models.base import CausalLM
from engine.compute.models.registry import family
from engine.formats.load import Checkpoint

BLOCKS = (Attention, GatedMLP, PlainMLP)
"""Blocks whose linear layers see the rows of a step as they are, each once and in order."""


class Sites(NamedTuple):
    """``found`` by the module's name in the checkpoint. ``others`` are modules, or beginnings of modules' names, whose
    products Kvasir computes in another way than one linear layer over the rows of a step."""

    found: dict[str, Site]
    others: tuple[str, ...]


class _Fused(NamedTuple):
    """A layer, and which modules it was made of."""

    layer: Linear
    names: tuple[str, ...]
    sizes: tuple[int, ...]


class _Recorder:
    """A source that remembers what it was asked for."""

    def __init__(self, source: WeightSource) -> None:
        self._source = source
        self.layers: dict[int, _Fused] = {}
        self.others: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        layer = self._source.linear(prefix, names, sizes, in_features, bias)
        self.layers[id(layer)] = _Fused(layer, tuple(prefix + name for name in names), tuple(sizes))
        return layer

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        self.others.append(prefix)
        return self._source.experts(prefix, count, names, sizes, in_features, bias)

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        self.others.append(prefix)
        return self._source.matrix(prefix, rows, columns)


def sites_of(checkpoint: Checkpoint, model: CausalLM) -> Sites:
    """The sites of ``model``, which was loaded from the checkpoint: it is planned once more, and who asks is noted."""
    meta = torch.device("meta")
    source = _Recorder(checkpoint.source(meta, torch.float32, "4bit", Numerics()))
    planned = family(checkpoint.config.architecture).Model(checkpoint.config, cast(WeightSource, source))
    found = {
        name: site
        for ours, theirs in zip(planned.layers, model.layers, strict=True)
        for block, attribute, fused in _layers(ours, source)
        for name, site in _sites(getattr(theirs, block), attribute, fused)
    }
    others = [name for fused in source.layers.values() for name in fused.names if name not in found]
    return Sites(found, (*others, *source.others))


def _layers(layer: Any, source: _Recorder) -> Iterator[tuple[str, str, _Fused]]:
    """The names of a layer's blocks and of the linear layers in them."""
    for name, block in vars(layer).items():
        for attribute, linear in vars(block).items() if isinstance(block, BLOCKS) else ():
            if isinstance(linear, Linear) and id(linear) in source.layers:
                yield name, attribute, source.layers[id(linear)]


def _sites(block: Any, attribute: str, fused: _Fused) -> Iterator[tuple[str, Site]]:
    start = 0
    for name, size in zip(fused.names, fused.sizes, strict=True):
        yield name, Site(block, attribute, start, start + size, fused.layer.in_features)
        start += size
