"""GPTQ and AWQ of one layer of a model after the other (a layer of the decoder: attention and MLP)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.attention import Attention
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.norm import RMSNorm
from engine.formats.load import Checkpoint
from engine.formats.quantised.quantise import STAY
from engine.protocol.making import LayerError
from engine.services.quantise import awq
from engine.services.quantise.blocks import Blocks, InputStatistics, Stage, TappedLinear
from engine.services.quantise.gptq import GPTQSettings, Solver
from engine.services.quantise.grid import Grid, GroupedWeights, nearest, relative_error
from engine.services.quantise.plan import WHOLE_ROW, MakePlan

Samples = Callable[[], Iterable[tuple[Sequence[int], Tensor]]]
"""Gives the calibration's sequences, and what enters the layer of each."""


class MadeLayer(NamedTuple):
    """``tensors`` by their names in the checkpoint; the weights of the modules in ``packed`` are no more."""

    tensors: dict[str, Tensor]
    packed: frozenset[str]
    errors: list[LayerError]


class _PrecedingRows(NamedTuple):
    """Output features of ``module`` that become input features of the next linear layer, each of them ``repeat`` times:
    those of a head of ``width`` one head after the other."""

    module: str
    repeat: int = 1
    width: int = 1

    def tied(self, magnitude: Tensor) -> Tensor:
        """The means ``[N]`` of ``magnitude [K]`` over what one output feature becomes."""
        return magnitude.view(-1, self.repeat, self.width).mean(1).flatten()

    def spread(self, scales: Tensor) -> Tensor:
        """``[N]`` -> ``[K]``"""
        return scales.view(-1, 1, self.width).expand(-1, self.repeat, -1).flatten()


class LayerQuantiser:
    """Quantises the layers of ``blocks`` in order, each of which reads what the quantised ones before it give."""

    def __init__(self, blocks: Blocks, checkpoint: Checkpoint, plan: MakePlan, group: int) -> None:
        self.blocks, self.source, self.config = blocks, blocks.source, checkpoint.config
        self.gptq, self.bits, self.group = plan.to == "gptq", plan.bits, group
        # Packers of version 1 of GPTQ's layout damage a word that holds a zero-point of 0.
        self.grid = Grid(plan.bits, plan.symmetric and self.gptq)
        self.settings = (plan.act_order, plan.static_groups)
        self._packed: dict[str, GroupedWeights] = {}
        self._changed: dict[str, Tensor] = {}
        self._errors: list[LayerError] = []

    def quantise(self, index: int, samples: Samples) -> MadeLayer:
        """Layer ``index``. Its weights in :attr:`blocks` are the new ones until they are let go."""
        self._packed, self._changed, self._errors = {}, {}, []
        first = next(iter(samples()))
        for stage in self.blocks.stages(index, *first):
            if any(map(self.packs, stage.modules)):
                statistics = self.blocks.watch(index, stage, samples())
                (self._by_gptq if self.gptq else self._by_awq)(index, stage, statistics)
        tensors = dict(self._changed)
        for module, weights in self._packed.items():
            parts = weights.gptq() if self.gptq else weights.awq()
            tensors |= {f"{module}.{part}": tensor for part, tensor in parts.items()}
        return MadeLayer(tensors, frozenset(self._packed), self._errors)

    def packs(self, module: str) -> bool:
        """Return True if a module is quantised: its sizes must fit into words, and the head, gates and routers stay."""
        return packs(self.source.files.entries[f"{module}.weight"].shape, module, self.bits)

    def _by_gptq(self, index: int, stage: Stage, statistics: InputStatistics) -> None:
        solver = Solver(statistics.hessian, GPTQSettings(self.grid, self._group_of(statistics), *self.settings))
        for module in filter(self.packs, stage.modules):
            weight = self.source.weight(module)
            self._take(module, weight, solver.quantised(weight), statistics.hessian)

    def _by_awq(self, index: int, stage: Stage, statistics: InputStatistics) -> None:
        hessian, scales = statistics.hessian, torch.ones_like(statistics.magnitude)
        packed = list(filter(self.packs, stage.modules))
        rows = self._maker_of(index, stage)
        if stage.norm or rows is not None:
            magnitude = statistics.magnitude if rows is None else rows.spread(rows.tied(statistics.magnitude))
            weights = [self.source.weight(module) for module in packed]
            scales = awq.search_scales(weights, hessian, magnitude, self.grid, self._group_of(statistics))
            if rows is not None:
                self._divide_rows(rows.module, rows.tied(scales))
            else:
                scales = self._divide_norm(index, stage.norm, scales)
        importance = hessian.diagonal() / scales.square()  # of the inputs divided by the scales
        for module in stage.modules:
            weight = self.source.weight(module)
            if module in packed:
                found = nearest(weight * scales, self.grid, self._group_of(statistics), importance)
                self._take(module, weight, found, hessian, scales)
            elif stage.norm:
                self._change(f"{module}.weight", weight * scales)

    def _take(
        self, module: str, weight: Tensor, found: GroupedWeights, hessian: Tensor, scales: Tensor | None = None
    ) -> None:
        """Put what was found in the place of ``weight``, whose input features it has multiplied by ``scales``."""
        new = found.dense()
        error = relative_error(weight, new if scales is None else new / scales, hessian)
        group = weight.shape[1] // found.scales.shape[1]
        rounded = relative_error(weight, nearest(weight, self.grid, group).dense(), hessian)
        self._errors.append(LayerError(module, error, rounded))
        self._packed[module] = found
        self.source.held[f"{module}.weight"] = new

    def _change(self, name: str, tensor: Tensor) -> None:
        """Another tensor in the place of one that stays as it is packed in the file."""
        self._changed[name] = tensor.to(self.source.files.dtype(name)).cpu()
        self.source.held[name] = self._changed[name].to(self.source.device, torch.float32)

    def _divide_rows(self, module: str, scales: Tensor) -> None:
        if module in self._packed:
            self._packed[module].divide_rows(scales)
            self.source.held[f"{module}.weight"] = self._packed[module].dense()
        else:
            self._change(f"{module}.weight", self.source.weight(module) / scales[:, None])
        bias = self.source.bias(module)
        if bias is not None:
            self._change(f"{module}.bias", bias / scales)

    def _divide_norm(self, index: int, attribute: str, scales: Tensor) -> Tensor:
        """Divide a norm's weight; returns the scales by which it was divided in the end."""
        layer = self.blocks.model.layers[index]
        norm: RMSNorm = getattr(layer, attribute)
        name = self._norm_name(index, attribute)
        offset = self.config.unit_offset_norms
        stored, scales = awq.fold_into_norm(norm.weight, scales, self.source.files.dtype(name), offset)
        self._changed[name] = stored.cpu()
        setattr(layer, attribute, RMSNorm(stored.float() + offset, norm.eps, norm.numerics))
        return scales

    def _norm_name(self, index: int, attribute: str) -> str:
        names: tuple[str, str] = self.blocks.model.layers[index].norm_names  # type: ignore[attr-defined]
        return f"model.layers.{index}.{names[Blocks.NORMS.index(attribute)]}.weight"

    def _maker_of(self, index: int, stage: Stage) -> _PrecedingRows | None:
        """The output features that the input of a stage is a multiple of, feature by feature."""
        layer = self.blocks.model.layers[index]
        attention, mlp = getattr(layer, "attention", None), getattr(layer, "mlp", None)
        linear = stage.linears[0]
        if isinstance(mlp, GatedMLP) and linear is mlp.down:
            return _last(mlp.gate_up, "up_proj", _PrecedingRows)
        plain = isinstance(attention, Attention) and not (attention.value_norm or attention.keys_as_values)
        if isinstance(attention, Attention) and plain and linear is attention.output and not attention.shares:
            repeat = attention.heads // attention.kv_heads
            return _last(attention.qkv, "v_proj", lambda module: _PrecedingRows(module, repeat, attention.head_dim))
        return None

    def _group_of(self, statistics: InputStatistics) -> int:
        return len(statistics.magnitude) if self.group == WHOLE_ROW else self.group


def packs(shape: tuple[int, ...], module: str, bits: int) -> bool:
    """Return True if a module with a weight of this shape is quantised."""
    return module.rpartition(".")[2] not in STAY and all(size * bits % 32 == 0 for size in shape)


def _last(linear: object, name: str, make: Callable[[str], _PrecedingRows]) -> _PrecedingRows | None:
    """Make the rows of the module ``name`` if it is the last of ``linear``; None if it is no module of its own."""
    module = linear.names[-1] if isinstance(linear, TappedLinear) else ""
    return make(module) if module.endswith(f".{name}") else None
