"""Hands a family its weights out of a GGUF file, as :class:`engine.formats.source.CheckpointSource` does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.embedding import StoredEmbedding, TokenTable
from engine.compute.layers.linear import ggml
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Concatenated, Dense
from engine.compute.layers.linear.ggml_blocks import BLOCKS
from engine.compute.layers.linear.triton.experts import stacked
from engine.config.attention import LatentShape
from engine.config.model import ModelConfig
from engine.formats.gguf.architectures import Architecture
from engine.formats.gguf.container import GGUFFile, GgufTensorInfo
from engine.formats.gguf.names import GATE_UP, K_UP, KV_UP, STACKED, UP, V_UP, Names
from engine.formats.gguf.types import FLOATING, TYPES
from engine.formats.quantised.layouts import ggml_layer
from engine.formats.quantised.quantise import Module, Quantiser
from engine.formats.source import HEAD, HeadInFile, LoadSettings, Source

MISMATCH = "The file contradicts itself: download the model again."


class _GgufModule(NamedTuple):
    """One linear module of the file, already checked. ``heads``: by how many its rows are interleaved; 0 if not.

    ``first``: its first row in the tensor, which may hold the rows of several modules.
    """

    name: str
    out_features: int
    type: int
    heads: int
    bias: bool
    first: int = 0


class GGUFSource(Source):
    """The source of a GGUF file. Matrices that are not packed are left to the quantiser."""

    def __init__(
        self, files: GGUFFile, config: ModelConfig, architecture: Architecture, settings: LoadSettings
    ) -> None:
        super().__init__(files.entries, settings)
        self.files = files
        self._names, self._norm_offset = Names(architecture.names, config.num_layers), architecture.norm_offset
        heads = {"q_proj": config.attention.num_heads, "k_proj": config.attention.num_kv_heads}
        self._heads = heads if architecture.interleaved else {}
        self._latent = config.attention.latent

    # --- what families ask for ---------------------------------------------------------------------------------

    def vector(self, name: str, size: int) -> Tensor:
        name = self._names.tensor(name)
        offset = self._norm_offset if name.endswith("norm.weight") else 0.0
        self._check(name, (size,), floating=True)
        if self._planning:
            vector = self._empty(size)
        else:
            stored = self.files.floating(name)
            vector = self._placed(stored.float() - offset if offset else stored)
        self._used(name)
        return vector

    def array(self, name: str, shape: tuple[int, ...]) -> Tensor:
        logarithm = name.endswith(".A_log")
        name = self._names.tensor(name)
        entry = self.files.entries.get(name)
        # Vectors may lie there as matrices, such as weights of a norm with a row for each group.
        alike = entry is not None and entry.numel == math.prod(shape)
        self._check(name, entry.shape if entry is not None and alike else shape, floating=True)
        if self._planning:
            stored = torch.empty(shape, device=self.device)
        else:
            stored = self.files.floating(name).to(self.device, torch.float32).reshape(shape)
            stored = stored.neg().log() if logarithm else stored.clone()
        self._used(name)
        return stored

    def embedding(self, name: str, rows: int, columns: int) -> Tensor | TokenTable:
        name = self._names.tensor(name)
        entry = self._check(name, (rows, columns))
        module = _GgufModule(name.removesuffix(".weight"), rows, entry.type, 0, False)
        in_file = self._tables_in_file
        table: Tensor | TokenTable
        if in_file and entry.type in FLOATING:
            stored = self._empty(rows, columns)
            if not self._planning:
                stored = self.files.in_file(name).view(FLOATING[entry.type]).view(rows, columns)
            table = StoredEmbedding(stored, self.dtype, self.device)
        elif self._unpacked(entry.type):
            table = self._dense([module], columns)
        else:
            weights = self._packed(name, module)
            if in_file and not self._planning:
                weights = weights._replace(data=self.files.in_file(name).view(weights.data.shape))
            table = ggml.GgmlEmbedding(weights, self.dtype, self.device, in_file)
        self._used(name)
        return table

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        heads = [self._heads.get(name, 0) for name in names]
        return self._one([self._names.module(prefix + name) for name in names], sizes, in_features, bias, heads)

    def _head_in_file(self, rows: int, columns: int) -> HeadInFile | None:
        module = self._module(self._names.module(HEAD), rows, columns, False)
        if module.type not in FLOATING or module.bias:
            return None
        name = f"{module.name}.weight"
        return (name,), lambda: self._rows(name, module)

    def matrix(self, prefix: str, rows: int, columns: int) -> Tensor:
        name = self._names.module(prefix)
        if self._latent is not None and name.endswith(KV_UP) and f"{name}.weight" not in self.files.entries:
            return self._kv_up(name.removesuffix(KV_UP), self._latent, rows // (self._latent.nope + self._latent.value))
        module = self._module(name, rows, columns, False)
        weight = self._dense([module], columns)
        self._used(*self._tensors(module))
        return weight

    def experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Sequence[Linear]:
        return stacked(self._experts(prefix, count, names, sizes, in_features, bias), count, self._target)

    def _experts(
        self, prefix: str, count: int, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool
    ) -> Iterator[Linear]:
        """A layer for each."""
        whole = [self._names.module(prefix + name) for name in names]
        if f"{whole[0]}.weight" not in self.files.entries and f"{_apart(whole[0], 0)}.weight" in self.files.entries:
            for expert in range(count):
                yield self._one([_apart(name, expert) for name in whole], sizes, in_features, bias)
            return
        if whole[-1].endswith(UP) and f"{whole[-1]}.weight" not in self.files.entries:
            whole, sizes = [whole[-1].removesuffix(UP) + GATE_UP], [sum(sizes)]
        modules = [
            self._module(name, size, in_features, bias, stacked=(count,))
            for name, size in zip(whole, sizes, strict=True)
        ]
        names = [name for module in modules for name in self._tensors(module)]
        self.asked.update(names)
        share = sum(self.files.entries[name].size for name in names) // count
        for expert in range(count):
            own = [module._replace(first=expert * module.out_features) for module in modules]
            yield self._fused(own, in_features)
            self._on_module(share)

    def _one(
        self, names: list[str], sizes: Sequence[int], in_features: int, bias: bool, heads: Sequence[int] = ()
    ) -> Linear:
        """One layer of modules of the file."""
        modules = [
            self._module(name, size, in_features, bias, turned)
            for name, size, turned in zip(names, sizes, heads or [0] * len(names), strict=True)
        ]
        layer = self._fused(modules, in_features)
        self._used(*(name for module in modules for name in self._tensors(module)))
        return layer

    # --- building ----------------------------------------------------------------------------------------------

    def _fused(self, modules: list[_GgufModule], in_features: int) -> Linear:
        runs = groupby(modules, key=lambda module: self._unpacked(module.type))
        layers = [self._layer(list(run), in_features) for _, run in runs]
        return layers[0] if len(layers) == 1 else Concatenated(layers)

    def _layer(self, modules: list[_GgufModule], in_features: int) -> Linear:
        """One layer of modules that are all to be dense, or all packed."""
        bias = self._bias(modules)
        if self._unpacked(modules[0].type):
            if self._quantiser is not None and self.weights != "16bit":
                to_quantise = [self._to_quantise(module, in_features) for module in modules]
                quantised = self._quantiser.layer(to_quantise, bias, self._target, self._planning)
                if quantised is not None:
                    return quantised
            return Dense(self._dense(modules, in_features, self._quantiser), bias, self.numerics)
        parts = [self._packed(f"{module.name}.weight", module) for module in modules]
        return ggml_layer(parts, bias, self._target, self._planning)

    def _to_quantise(self, module: _GgufModule, in_features: int) -> Module:
        name = f"{module.name}.weight"
        return Module(
            f"{module.name}.{module.first}" if module.first else module.name,
            module.out_features,
            in_features,
            lambda: half_split(self._rows(name, module), module.heads),
        )

    def _dense(self, modules: list[_GgufModule], in_features: int, quantiser: Quantiser | None = None) -> Tensor:
        """The weights unpacked; those that ``quantiser`` would pack are rounded as it does."""
        weight = self._empty(sum(module.out_features for module in modules), in_features)
        if not self._planning:
            for module, rows in zip(modules, weight.split([module.out_features for module in modules]), strict=True):
                packed = quantiser.packed(self._to_quantise(module, in_features)) if quantiser is not None else None
                if packed is not None:
                    packed.layout.write(packed.read(), rows)
                else:
                    self._write(f"{module.name}.weight", module, rows)
        return weight

    def _kv_up(self, layer: str, shape: LatentShape, heads: int) -> Tensor:
        """Latent attention's ``[heads * (nope + value), rank]``, of its two parts; that for keys lies across."""
        k_up = self._module(f"{layer}{K_UP}", shape.rank, shape.nope, False, stacked=(heads,))
        v_up = self._module(f"{layer}{V_UP}", shape.value, shape.rank, False, stacked=(heads,))
        parts = [
            self._dense([whole._replace(out_features=heads * whole.out_features)], columns).view(heads, -1, columns)
            for whole, columns in ((k_up, shape.nope), (v_up, shape.rank))
        ]
        self._used(*self._tensors(k_up), *self._tensors(v_up))
        return torch.cat((parts[0].transpose(1, 2), parts[1]), 1).flatten(0, 1)

    def _bias(self, modules: list[_GgufModule]) -> Tensor | None:
        """The fused bias, zero for modules without one."""
        if not any(module.bias for module in modules):
            return None
        if self._planning:
            return self._empty(sum(module.out_features for module in modules))
        parts = [
            self._placed(half_split(self._rows(f"{module.name}.bias", module), module.heads))
            if module.bias
            else self._empty(module.out_features).zero_()
            for module in modules
        ]
        return torch.cat(parts)

    def _rows(self, name: str, module: _GgufModule) -> Tensor:
        """The module's rows of a tensor of floating type: of matrices ``[rows, columns]``, of biases ``[rows]``."""
        stored = self.files.floating(name)
        rows = stored.flatten() if name.endswith(".bias") else stored.view(-1, stored.shape[-1])
        return rows[module.first : module.first + module.out_features]

    def _placed(self, stored: Tensor) -> Tensor:
        return stored.to(self.device, self.dtype, copy=True)

    def _packed(self, name: str, module: _GgufModule) -> ggml.GgmlWeights:
        entry, rows = self.files.entries[name], module.out_features
        in_features = entry.shape[-1]
        if self._planning:
            size = (rows, BLOCKS[entry.type].row_bytes(in_features))
            return ggml.GgmlWeights(entry.type, torch.empty(size, dtype=torch.uint8, device="meta"), in_features)
        stored = self.files.packed(name)[module.first : module.first + rows]
        return ggml.GgmlWeights(entry.type, half_split(stored, module.heads), in_features)

    def _write(self, name: str, module: _GgufModule, out: Tensor) -> None:
        """Write a matrix into ``out [rows, columns]``."""
        if self.files.entries[name].type in FLOATING:
            out.copy_(half_split(self._rows(name, module), module.heads))
        else:
            ggml.write_dense(self._packed(name, module), out)

    def _unpacked(self, kind: int) -> bool:
        return self.weights == "16bit" or kind in FLOATING

    # --- checks ------------------------------------------------------------------------------------------------

    def _module(
        self, name: str, out_features: int, in_features: int, bias: bool, heads: int = 0, stacked: tuple[int, ...] = ()
    ) -> _GgufModule:
        """One module, or the first of those ``stacked`` in the tensors of all, ``(how many,)``."""
        entry = self._check(f"{name}.weight", (*stacked, out_features, in_features))
        if bias or f"{name}.bias" in self.files.entries:
            self._check(f"{name}.bias", (*stacked, out_features), floating=True)
            bias = True
        return _GgufModule(name, out_features, entry.type, heads, bias)

    def _check(self, name: str, shape: tuple[int, ...], floating: bool = False) -> GgufTensorInfo:
        entry = self.files.entries.get(name)
        if entry is None:
            raise CheckpointError(f"The weights lack the tensor {name}. {MISMATCH}")
        if entry.shape != shape:
            raise CheckpointError(
                f"{name} has the shape {list(entry.shape)} where the metadata implies {list(shape)}. {MISMATCH}"
            )
        readable = [TYPES[kind].name for kind in (FLOATING if floating else (*FLOATING, *BLOCKS))]
        if TYPES[entry.type].name not in readable:
            raise CheckpointError(
                f"{name} is stored as {TYPES[entry.type].name}, and Kvasir reads {', '.join(readable)} there. "
                "Choose another version of the model, such as Q4_K_M."
            )
        return entry

    def _tensors(self, module: _GgufModule) -> Iterator[str]:
        yield f"{module.name}.weight"
        if module.bias:
            yield f"{module.name}.bias"


def _apart(stacked: str, expert: int) -> str:
    """Name in older files of one of the experts that are ``stacked`` in newer ones."""
    return f"{stacked.removesuffix(STACKED)}.{expert}"


def half_split(rows: Tensor, heads: int) -> Tensor:
    """Rows of q or k as ggml's rotation of neighbours has them -> as the rotation of halves has them.

    ``rows [heads * head_dim, ...]``, weights or whole packed rows of them; ``heads`` 0 leaves them.
    """
    if not heads:
        return rows
    return rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def neighbours(rows: Tensor, heads: int) -> Tensor:
    """The other way round than :func:`half_split`."""
    if not heads:
        return rows
    return rows.view(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
